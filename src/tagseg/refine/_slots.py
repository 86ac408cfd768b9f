"""Which classes of an image a dense CRF computes: those that occur, and one in place of all those that do not."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tagseg._device import to_device


@dataclass(frozen=True)
class Slots:
    """Where the classes of each image of a batch are computed.

    The classes of an image that are nowhere above the clip start alike, so they stay alike, and one slot stands for
    all of them. Images with fewer slots than others leave their last ones empty.

    Attributes:
        classes: a class of each slot, int64 [images, slots], counted through all images.
        copies: how many classes each slot stands for, 0 if it is empty, float32 [images, slots].
        of_class: the slot of each class, one beyond the last if it takes no part, int64 [images, classes], counted
            through all images.
    """

    classes: Tensor
    copies: Tensor
    of_class: Tensor

    def log_probs(self, probs: Tensor, clip: float) -> Tensor:
        """The logarithm of each slot's clipped probability, -inf if it is empty.

        Args:
            probs: [images, classes, pixels].
            clip: the least probability.

        Returns:
            [images, pixels, slots]: a step of the lattice moves all classes of a pixel at once.
        """
        rows = probs.flatten(0, 1)[self.classes]
        logs = rows.clamp_(clip, 1).log_().masked_fill_(self.copies[:, :, None] == 0, float("-inf"))
        return logs.transpose(1, 2).contiguous()

    def spread(self, shares: Tensor) -> Tensor:
        """What each class has, [images, classes, pixels], from each slot's share [images, pixels, slots]."""
        images, pixels, slots = shares.shape
        rows = shares.new_zeros(images, slots + 1, pixels)
        rows[:, :-1] = shares.transpose(1, 2)
        return rows.flatten(0, 1)[self.of_class]


def assign_slots(occurs: Tensor, present: Tensor, device: torch.device, *, power_of_two: bool) -> Slots:
    """Give each class that occurs a slot, in their order, and those that do not occur the next one together.

    Args:
        occurs: whether a class is anywhere above the clip, [images, classes], on the CPU.
        present: whether a class takes part at all, [images, classes], on the CPU.
        device: where the slots are needed.
        power_of_two: round the number of slots up to one.
    """
    # So few numbers are sorted out in Python sooner than a GPU starts the first of many operations.
    number = occurs.shape[1]
    groups = []
    for above_clip, taking_part in zip(occurs.tolist(), present.tolist(), strict=True):
        silent = [k for k in range(number) if taking_part[k] and not above_clip[k]]
        groups.append([[k] for k in range(number) if taking_part[k] and above_clip[k]] + [silent] * bool(silent))
    slots = max(len(image) for image in groups)
    if power_of_two:
        slots = 1 << (slots - 1).bit_length()

    classes, copies, of_class = [], [], []
    for row, image in enumerate(groups):
        empty = slots - len(image)
        classes.append([row * number + group[0] for group in image] + [row * number] * empty)
        copies.append([len(group) for group in image] + [0] * empty)
        slot_of = {k: slot for slot, group in enumerate(image) for k in group}
        of_class.append([row * (slots + 1) + slot_of.get(k, slots) for k in range(number)])
    return Slots(
        to_device(classes, torch.int64, device),
        to_device(copies, torch.float32, device),
        to_device(of_class, torch.int64, device),
    )
