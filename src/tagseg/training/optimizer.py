"""The optimizer, its learning-rate schedule, and the moving average of the weights."""

import torch
from torch import Tensor

from tagseg.models import Network
from tagseg.models.base import copy_network
from tagseg.training.recipe import TrainingSettings


def build_optimizer(network: Network, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """Build the optimizer of a run, with the network's groups of parameters."""
    groups = network.parameter_groups(settings.lr, weight_decay=settings.weight_decay)
    fused = device.type == "cuda"
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, fused=fused)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, fused=fused)


def schedule_factor(settings: TrainingSettings, step: int, steps: int) -> float:
    """Factor of the learning rate in a step, counted from 0, of so many steps."""
    warmup = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    return warmup * (1.0 if settings.schedule == "constant" else 1 - step / steps)


class Schedule:
    """Learning rates of an optimizer as a function of the step alone, so that a checkpoint need not store them.

    Args:
        optimizer: Optimizer whose groups have their base learning rates.
        settings: Schedule and warm-up.
        steps: Steps of the whole run.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, settings: TrainingSettings, steps: int) -> None:
        self._groups, self._settings, self._steps = optimizer.param_groups, settings, steps
        self._base_rates = [group["lr"] for group in self._groups]

    def set_step(self, step: int) -> None:
        """Set the learning rates of a step, counted from 0."""
        factor = schedule_factor(self._settings, step, self._steps)
        for group, rate in zip(self._groups, self._base_rates, strict=True):
            group["lr"] = rate * factor


class MovingAverage:
    """Exponential moving average of a network's weights and batch-norm statistics (EMA).

    Attributes:
        network: Copy of the network with the averaged weights.

    Args:
        network: Network in training, on its device.
        decay: Share of the average that stays in each step; less in the first steps, so that the average is not biased
            towards the initial weights.
    """

    def __init__(self, network: Network, decay: float) -> None:
        self.network = copy_network(network).requires_grad_(False)
        self._decay = decay
        parameters = zip(self.network.parameters(), network.parameters(), strict=True)
        buffers = zip(self.network.buffers(), network.buffers(), strict=True)
        pairs: list[tuple[Tensor, Tensor]] = [pair for pair in parameters if pair[1].requires_grad]
        pairs += [pair for pair in buffers if pair[1].is_floating_point()]
        self._averages = [average for average, _ in pairs]
        self._values = [value for _, value in pairs]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the network after a step, counted from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._averages, [value.detach() for value in self._values], 1 - decay)
