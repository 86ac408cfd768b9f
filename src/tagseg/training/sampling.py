"""Which images make which batch: fixed by the seed alone, from any step on, for any number of processes."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from tagseg.training.augment import seed_for


class Schedule(Sampler[list[tuple[int, int]]]):
    """The micro-batches of one process over a whole run, as lists of (epoch, position).

    A step's global batch is what the recipe says, however many processes there are: each takes its share, in
    `accumulate` parts. Images are reshuffled every epoch; what is left over at its end is dropped.

    Args:
        images: how many there are; fewer than a batch are repeated to fill one.
        batch: images a step, over all processes.
        accumulate: parts that a process cuts its share into.
        epochs: how many.
        seed: of the run.
        processes: how many share the work.
        process: which of them this is.
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
            raise ValueError(
                f"a batch of {batch} images cannot be shared by {processes} processes in {accumulate} parts each; "
                f"set training.batch_size to a multiple of {processes * accumulate}"
            )
        self.images, self.batch, self.accumulate, self.epochs = images, batch, accumulate, epochs
        self.seed, self.processes, self.process = seed, processes, process
        self.start = 0

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in an epoch."""
        return max(1, self.images // self.batch)

    @property
    def steps(self) -> int:
        """Optimiser steps in the whole run."""
        return self.steps_per_epoch * self.epochs

    def __len__(self) -> int:
        return (self.steps - self.start) * self.accumulate

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        part = self.batch // (self.processes * self.accumulate)
        for epoch in range(self.start // self.steps_per_epoch, self.epochs):
            order = self._order(epoch)
            for step in range(self.steps_per_epoch):
                if epoch * self.steps_per_epoch + step < self.start:
                    continue
                chosen = order[step * self.batch : (step + 1) * self.batch]
                mine = chosen[self.process :: self.processes]
                for first in range(0, len(mine), part):
                    yield [(epoch, position) for position in mine[first : first + part]]

    def _order(self, epoch: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed_for(self.seed, epoch))
        order: list[int] = []
        while len(order) < self.batch:
            order += torch.randperm(self.images, generator=generator).tolist()
        return order
