"""Pixel-Adaptive Mask Refinement (Sec. 3.3): masks pulled to the picture's own boundaries, without any parameter."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._checks import require_finite, require_shape, unknown_name

KERNELS = ("reference", "paper")
_OFFSETS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


def pamr(
    image: Tensor,
    masks: Tensor,
    *,
    dilations: Sequence[int] = (1, 2, 4, 8, 12, 24),
    iterations: int = 10,
    kernel: str = "reference",
) -> Tensor:
    """Refine masks by the picture (Eq. 7): each pixel becomes a weighted mean of its neighbours, again and again.

    A neighbour weighs more the more alike it looks. The weights of a pixel sum to 1, so the masks' sum at a pixel and
    each mask's range are kept. Each mask is refined by itself, and masks that need no refinement can be left out.

    Differentiable in the masks and in the picture. Neighbours are added up one after another and never held together:
    besides the affinities (8 planes a dilation, for all masks) it needs about three times the masks' memory.

    Args:
        image: the picture in [0, 1], not normalised, [B, 3, H, W] (any number of channels).
        masks: the masks, [B, C, h, w]; if smaller than the picture, they are enlarged to it first (bilinear, corners
            aligned).
        dilations: the 3x3 neighbourhoods that are taken together.
        iterations: how often; 0 returns the masks at the picture's size.
        kernel: `reference` divides colour differences by a tenth of their local standard deviation, as the published
            implementation does; `paper` by the local variance (Eq. 8).

    Returns:
        The refined masks, [B, C, H, W].
    """
    _check(image, masks, dilations, iterations, kernel)
    if masks.shape[-2:] != image.shape[-2:]:
        masks = F.interpolate(masks, size=image.shape[-2:], mode="bilinear", align_corners=True)
    if iterations == 0:
        return masks
    # Half precision has no number as small as the kernel's epsilon.
    precise = torch.promote_types(masks.dtype, torch.float32)
    affinities = _affinities(image.to(precise), dilations, kernel).to(masks.dtype)
    for _ in range(iterations):
        masks = _mean_of_neighbours(masks, affinities, dilations)
    return masks


def _mean_of_neighbours(masks: Tensor, affinities: Tensor, dilations: Sequence[int]) -> Tensor:
    """One iteration. Neighbours are views of one padded copy, which is freed on return, before the next is made."""
    mean = torch.zeros_like(masks)
    for index, neighbour in enumerate(_neighbours(masks, dilations)):
        mean.addcmul_(affinities[:, index : index + 1], neighbour)
    return mean


def _affinities(image: Tensor, dilations: Sequence[int], kernel: str) -> Tensor:
    """How much of each neighbour a pixel takes, [B, neighbours, H, W]: the softmax of their closeness in colour."""
    # The deviation is taken over the 3x3 of every dilation, so the centre counts once for each. Its sums run over the
    # differences to the centre: they are exact where the picture is nearly flat, where sums of squares would cancel.
    values = 9 * len(dilations)
    total, squares = torch.zeros_like(image), torch.zeros_like(image)
    for neighbour in _neighbours(image, dilations):
        difference = neighbour - image
        total, squares = total + difference, squares + difference**2
    variance = ((squares - total**2 / values) / (values - 1)).clamp_min(0)
    scale = 1e-8 + (0.1 * variance.sqrt() if kernel == "reference" else variance)
    batch, _, height, width = image.shape
    closeness = image.new_empty(batch, 8 * len(dilations), height, width)
    for index, neighbour in enumerate(_neighbours(image, dilations)):
        closeness[:, index] = -((neighbour - image).abs() / scale).mean(1)
    return closeness.softmax(dim=1)


def _neighbours(maps: Tensor, dilations: Sequence[int]) -> Iterator[Tensor]:
    """The maps as seen from each neighbour in turn; beyond the border they repeat."""
    height, width = maps.shape[-2:]
    reach = max(dilations)
    padded = F.pad(maps, (reach, reach, reach, reach), mode="replicate")
    for dilation in dilations:
        for dy, dx in _OFFSETS:
            top, left = reach + dy * dilation, reach + dx * dilation
            yield padded[..., top : top + height, left : left + width]


def _check(image: Tensor, masks: Tensor, dilations: Sequence[int], iterations: int, kernel: str) -> None:
    require_shape("image", image, "[B, 3, H, W]")
    require_shape("masks", masks, "[B, C, h, w]")
    if image.shape[0] != masks.shape[0]:
        raise ValueError(f"image and masks must be of one batch size, got {image.shape[0]} and {masks.shape[0]}")
    (height, width), (rows, columns) = image.shape[-2:], masks.shape[-2:]
    # A network's stride rounds each side up or down; more than that is another picture's mask, or one on its side.
    if abs(height * columns - width * rows) > height + width:
        raise ValueError(
            f"image and masks do not match: the image is {height} x {width} and the masks are {rows} x {columns} "
            "pixels, which is not the same shape at another scale"
        )
    if not image.is_floating_point() or not masks.is_floating_point():
        raise ValueError(
            f"image and masks must be floating point, got {image.dtype} and {masks.dtype}; divide by 255 first"
        )
    if not dilations or min(dilations) < 1:
        raise ValueError(f"dilations must be one or more numbers from 1 up, got {tuple(dilations)}")
    if iterations < 0:
        raise ValueError(f"iterations must be 0 or more, got {iterations}")
    if kernel not in KERNELS:
        raise unknown_name("PAMR kernel", kernel, KERNELS)
    require_finite("image", image)
    require_finite("masks", masks)
