"""Which classes of a picture a dense CRF computes: those that occur, and one in place of all those that do not."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Slots:
    """Where the classes of each picture of a batch are computed.

    The classes of a picture that are nowhere above the clip start alike, so they stay alike, and one slot stands for
    all of them. Pictures with fewer slots than others leave their last ones empty.

    Attributes:
        classes: a class of each slot, int64 [pictures, slots].
        copies: how many classes each slot stands for, 0 if it is empty, float32 [pictures, slots].
        of_class: the slot of each class, int64 [pictures, classes].
    """

    classes: Tensor
    copies: Tensor
    of_class: Tensor

    def log_probs(self, probs: Tensor, clip: float) -> Tensor:
        """The logarithm of each slot's clipped probability, -inf if it is empty.

        Args:
            probs: [pictures, classes, pixels].
            clip: the least probability.

        Returns:
            [pictures, pixels, slots]: a step of the lattice moves all classes of a pixel at once.
        """
        chosen = probs.gather(1, self.classes[:, :, None].expand(-1, -1, probs.shape[2])).float()
        logs = chosen.clamp_(clip, 1).log_().masked_fill_(self.copies[:, :, None] == 0, float("-inf"))
        return logs.transpose(1, 2).contiguous()

    def spread(self, shares: Tensor) -> Tensor:
        """What each class has, [pictures, classes, pixels], from each slot's share [pictures, pixels, slots]."""
        index = self.of_class[:, :, None].expand(-1, -1, shares.shape[1])
        return shares.transpose(1, 2).contiguous().gather(1, index)


def assign_slots(occurs: Tensor, present: Tensor) -> Slots:
    """Give each class that occurs a slot, in their order, and those that do not occur the next one together.

    Args:
        occurs: whether a class is anywhere above the clip, [pictures, classes].
        present: whether a class takes part at all, [pictures, classes].
    """
    active, silent = occurs & present, present & ~occurs
    count = active.sum(1, keepdim=True)
    slots = int((count + silent.any(1, keepdim=True)).max())
    # Classes that take no part go to a slot beyond the last, which is then cut off.
    of_class = torch.where(active, active.cumsum(1) - 1, torch.where(silent, count, slots))
    numbers = torch.arange(occurs.shape[1], device=occurs.device).expand_as(of_class)
    classes = numbers.new_zeros(len(occurs), slots + 1).scatter_(1, of_class, numbers)
    copies = torch.zeros_like(classes, dtype=torch.float32).scatter_add_(1, of_class, torch.ones_like(of_class).float())
    return Slots(classes[:, :-1], copies[:, :-1].contiguous(), of_class.clamp(max=slots - 1))
