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
        of_class: the slot of each class, one beyond the last if it takes no part, int64 [pictures, classes].
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
        rows = probs.flatten(0, 1)[_rows_of_a_batch(self.classes, probs.shape[1])]
        logs = rows.clamp_(clip, 1).log_().masked_fill_(self.copies[:, :, None] == 0, float("-inf"))
        return logs.transpose(1, 2).contiguous()

    def spread(self, shares: Tensor) -> Tensor:
        """What each class has, [pictures, classes, pixels], from each slot's share [pictures, pixels, slots]."""
        pictures, pixels, slots = shares.shape
        rows = shares.new_zeros(pictures, slots + 1, pixels)
        rows[:, :-1] = shares.transpose(1, 2)
        return rows.flatten(0, 1)[_rows_of_a_batch(self.of_class, slots + 1)]


def _rows_of_a_batch(rows: Tensor, rows_of_picture: int) -> Tensor:
    """Rows of each picture, [pictures, n], as rows of all pictures below each other."""
    return rows + rows_of_picture * torch.arange(len(rows), device=rows.device)[:, None]


def assign_slots(occurs: Tensor, present: Tensor, *, power_of_two: bool) -> Slots:
    """Give each class that occurs a slot, in their order, and those that do not occur the next one together.

    Args:
        occurs: whether a class is anywhere above the clip, [pictures, classes].
        present: whether a class takes part at all, [pictures, classes].
        power_of_two: round the number of slots up to one.
    """
    active, silent = occurs & present, present & ~occurs
    count = active.sum(1, keepdim=True)
    slots = int((count + silent.any(1, keepdim=True)).max())
    if power_of_two:
        slots = 1 << (slots - 1).bit_length()
    of_class = torch.where(active, active.cumsum(1) - 1, torch.where(silent, count, slots))
    numbers = torch.arange(occurs.shape[1], device=occurs.device).expand_as(of_class)
    classes = numbers.new_zeros(len(occurs), slots + 1).scatter_(1, of_class, numbers)
    copies = torch.zeros_like(classes, dtype=torch.float32).scatter_add_(1, of_class, torch.ones_like(of_class).float())
    return Slots(classes[:, :-1], copies[:, :-1].contiguous(), of_class)
