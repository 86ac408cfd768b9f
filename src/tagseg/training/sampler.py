"""Batches of a run: determined by the seed, from any step on, for any number of processes."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from tagseg.errors import ConfigError
from tagseg.training.transforms import seed_for


class ResumableBatchSampler(Sampler[list[tuple[int, int]]]):
    """Micro-batches of one process over a whole run, as lists of (epoch, position).

    The batch of a step has the same images for any number of processes: each takes its share, in `accumulate` parts.
    Images are shuffled in every epoch, and an incomplete last batch is dropped.

    Args:
        images: Number of images; if there are fewer than a batch, they are repeated.
        batch: Images per step, over all processes.
        accumulate: Micro-batches per step.
        epochs: Number of epochs.
        seed: Random seed of the run.
        processes: Number of processes.
        process: Index of this process.

    Attributes:
        start: Step to resume from.
    """

    def __init__(
        self,
        images: int,
        batch: int,
        *,
        accumulate: int = 1,
        epochs: int = 1,
        seed: int = 0,
        processes: int = 1,
        process: int = 0,
    ) -> None:
        if batch % (processes * accumulate):
            raise ConfigError(
                f"a batch of {batch} images cannot be shared by {processes} processes in {accumulate} parts each; "
                f"set training.batch_size to a multiple of {processes * accumulate}"
            )
        self.images, self.batch, self.accumulate, self.epochs = images, batch, accumulate, epochs
        self.seed, self.processes, self.process = seed, processes, process
        self.start = 0

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return max(1, self.images // self.batch)

    @property
    def steps(self) -> int:
        """Optimizer steps in the whole run."""
        return self.steps_per_epoch * self.epochs

    def __len__(self) -> int:
        return (self.steps - self.start) * self.accumulate

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        micro_batch = self.batch // (self.processes * self.accumulate)
        for epoch in range(self.start // self.steps_per_epoch, self.epochs):
            order = self._order(epoch)
            for step in range(self.steps_per_epoch):
                if epoch * self.steps_per_epoch + step < self.start:
                    continue
                share = self._of_step(order, step)[self.process :: self.processes]
                for first in range(0, len(share), micro_batch):
                    yield [(epoch, position) for position in share[first : first + micro_batch]]

    def positions(self, step: int) -> list[int]:
        """Positions of a step's images, over all processes; steps are counted from 0 over the whole run."""
        return self._of_step(self._order(step // self.steps_per_epoch), step % self.steps_per_epoch)

    def _of_step(self, order: list[int], step: int) -> list[int]:
        return order[step * self.batch : (step + 1) * self.batch]

    def _order(self, epoch: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed_for(self.seed, epoch))
        order: list[int] = []
        while len(order) < self.batch:
            order += torch.randperm(self.images, generator=generator).tolist()
        return order
