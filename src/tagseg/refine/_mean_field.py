"""Mean-field inference of the dense CRF in plain torch operators, and the classes that it computes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tagseg._device import to_device
from tagseg.refine.lattice import Lattice


@dataclass(frozen=True)
class ClassGroups:
    """Groups of classes that have the same probabilities, for each image of a batch.

    The classes of an image that are nowhere above the clip start with the same unary and remain equal, so they form one
    group. Every other class is a group of its own. Images with fewer groups than others have empty groups at the end.

    Attributes:
        representatives: A class of each group, int64 [images, groups], as an index into the classes of all images.
        counts: Number of classes in each group, 0 if it is empty, float32 [images, groups].
        group_of_class: Group of each class, int64 [images, classes], as an index into `groups + 1` groups of all
            images; the last of these is for the classes that do not take part.
    """

    representatives: Tensor
    counts: Tensor
    group_of_class: Tensor

    def of_image(self, image: int) -> "ClassGroups":
        """Return the groups of one image."""
        classes, groups = self.group_of_class.shape[1], self.counts.shape[1]
        rows = slice(image, image + 1)
        return ClassGroups(
            self.representatives[rows] - image * classes,
            self.counts[rows],
            self.group_of_class[rows] - image * (groups + 1),
        )

    def unary(self, probs: Tensor, clip: float) -> Tensor:
        """Compute the logits of the unary term: the logarithm of the clipped probabilities, -inf for empty groups.

        Args:
            probs: Class probabilities, [images, classes, pixels].
            clip: Lower bound of the probabilities.

        Returns:
            The logits, [images, pixels, groups]: a row of the lattice's matrices moves all groups of a pixel at once.
        """
        rows = probs.flatten(0, 1)[self.representatives]
        logits = rows.clamp_(clip, 1).log_().masked_fill_(self.counts[:, :, None] == 0, float("-inf"))
        return logits.transpose(1, 2).contiguous()

    def expand(self, q: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Expand probabilities of groups to those of classes.

        Args:
            q: Probabilities of the groups, [images, pixels, groups].
            out: Where to write the result of a single image, [classes, pixels].

        Returns:
            The probabilities of the classes, [images, classes, pixels].
        """
        images, pixels, groups = q.shape
        rows = q.new_zeros(images, groups + 1, pixels)
        rows[:, :-1] = q.transpose(1, 2)
        expanded = torch.index_select(rows.flatten(0, 1), 0, self.group_of_class.flatten(), out=out)
        return expanded.view(images, -1, pixels) if out is None else out[None]


def group_classes(occurs: Tensor, present: Tensor, device: torch.device, *, power_of_two: bool) -> ClassGroups:
    """Group the classes of each image.

    Args:
        occurs: Whether a class is anywhere above the clip, [images, classes], on the CPU.
        present: Whether a class takes part, [images, classes], on the CPU.
        device: Device of the groups.
        power_of_two: Round the number of groups up to a power of two.
    """
    # Python loops: launching the equivalent GPU operators would take longer for so few numbers.
    classes = occurs.shape[1]
    groups_of_images = []
    for above_clip, takes_part in zip(occurs.tolist(), present.tolist(), strict=True):
        below = [k for k in range(classes) if takes_part[k] and not above_clip[k]]
        groups_of_images.append(
            [[k] for k in range(classes) if takes_part[k] and above_clip[k]] + [below] * bool(below)
        )
    size = max(len(groups) for groups in groups_of_images)
    if power_of_two:
        size = 1 << (size - 1).bit_length()

    representatives, counts, group_of_class = [], [], []
    for image, groups in enumerate(groups_of_images):
        empty = size - len(groups)
        representatives.append([image * classes + group[0] for group in groups] + [image * classes] * empty)
        counts.append([len(group) for group in groups] + [0] * empty)
        index = {k: number for number, group in enumerate(groups) for k in group}
        group_of_class.append([image * (size + 1) + index.get(k, size) for k in range(classes)])
    return ClassGroups(
        to_device(representatives, torch.int64, device),
        to_device(counts, torch.float32, device),
        to_device(group_of_class, torch.int64, device),
    )


def grouped_softmax(logits: Tensor, counts: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over classes that are given in groups.

    Args:
        logits: Logits of the groups, [images, pixels, groups].
        counts: Number of classes in each group, [images, groups].
        out: Where to write the result.

    Returns:
        The probability of each single class of a group, [images, pixels, groups].
    """
    # On a CPU, torch's softmax is not vectorized for rows shorter than a vector register.
    fast = logits.shape[2] >= 16 or logits.is_cuda
    exps = logits.softmax(2) if fast else logits.sub(logits.amax(2, keepdim=True)).exp_()
    # Matrix-vector products, because matrix products would be rounded to TF32 where that is enabled.
    totals = torch.stack([torch.mv(rows, numbers) for rows, numbers in zip(exps, counts, strict=True)])
    return torch.div(exps, totals[:, :, None], out=exps if out is None else out)


def mean_field(lattice: Lattice, probs: Tensor, groups: ClassGroups, *, clip: float, iterations: int) -> Tensor:
    """Run mean-field inference: Q is updated by the messages that all other pixels send.

    Args:
        lattice: Sum of both kernels, over the pixels of all images.
        probs: Class probabilities of float32 [images, classes, pixels].
        groups: Groups of classes that are computed.
        clip: Lower bound of the probabilities.
        iterations: Number of mean-field updates.

    Returns:
        The probabilities Q of all classes, [images, classes, pixels].
    """
    unary = groups.unary(probs, clip)
    q = grouped_softmax(unary, groups.counts)
    for _ in range(iterations):
        # Message passing. The Potts compatibility is a factor of the lattice's weights.
        messages = lattice.filter(q.flatten(0, 1)).view_as(unary)
        q = grouped_softmax(messages.add_(unary), groups.counts)
    return groups.expand(q)
