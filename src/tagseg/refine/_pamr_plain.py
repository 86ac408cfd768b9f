"""PAMR in plain operations of torch: on every device, in every precision, differentiable in masks and image."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

OFFSETS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


def refine(
    image: Tensor, masks: Tensor, present: Tensor | None, *, dilations: Sequence[int], iterations: int, kernel: str
) -> Tensor:
    """Refine masks of the image's size; see `pamr`.

    Neighbours are added up one after another and never held together.
    """
    # Half precision has no number as small as the kernel's epsilon.
    precise = torch.promote_types(masks.dtype, torch.float32)
    weights = affinities(image.to(precise), dilations, kernel).to(masks.dtype)
    refined = masks
    for _ in range(iterations):
        refined = _mean_of_neighbours(refined, weights, dilations)
    return refined if present is None else torch.where(present.bool()[:, :, None, None], refined, masks)


def affinities(image: Tensor, dilations: Sequence[int], kernel: str) -> Tensor:
    """How much of each neighbour a pixel takes, [B, neighbours, H, W]: the softmax of their closeness in colour."""
    # The deviation is taken over the 3x3 of every dilation, so the centre counts once for each. Its sums run over the
    # differences to the centre: they are exact where the image is nearly flat, where sums of squares would cancel.
    values = 9 * len(dilations)
    total, squares = torch.zeros_like(image), torch.zeros_like(image)
    for neighbour in _neighbours(image, dilations):
        difference = neighbour - image
        total, squares = total + difference, squares + difference**2
    scale = colour_scale(total, squares, values, kernel)
    batch, _, height, width = image.shape
    closeness = image.new_empty(batch, 8 * len(dilations), height, width)
    for index, neighbour in enumerate(_neighbours(image, dilations)):
        closeness[:, index] = -((neighbour - image).abs() / scale).mean(1)
    return closeness.softmax(dim=1)


def colour_scale(total: Tensor, squares: Tensor, values: int, kernel: str) -> Tensor:
    """By what colour differences are divided, from their sum, the sum of their squares and their number."""
    variance = ((squares - total**2 / values) / (values - 1)).clamp_min(0)
    return 1e-8 + (0.1 * variance.sqrt() if kernel == "reference" else variance)


def _mean_of_neighbours(masks: Tensor, weights: Tensor, dilations: Sequence[int]) -> Tensor:
    """One iteration. Neighbours are views of one padded copy, which is freed on return, before the next is made."""
    mean = torch.zeros_like(masks)
    for index, neighbour in enumerate(_neighbours(masks, dilations)):
        mean.addcmul_(weights[:, index : index + 1], neighbour)
    return mean


def _neighbours(maps: Tensor, dilations: Sequence[int]) -> Iterator[Tensor]:
    """The maps as seen from each neighbour in turn; beyond the border they repeat."""
    height, width = maps.shape[-2:]
    reach = max(dilations)
    padded = F.pad(maps, (reach, reach, reach, reach), mode="replicate")
    for dilation in dilations:
        for dy, dx in OFFSETS:
            top, left = reach + dy * dilation, reach + dx * dilation
            yield padded[..., top : top + height, left : left + width]
