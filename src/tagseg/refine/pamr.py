"""Pixel-Adaptive Mask Refinement (Sec. 3.3): align masks with the image's edges, without trained parameters.

`pamr` is the public function. The plain implementation is below it; `_pamr_cpu` and `_pamr_triton` are faster ones for
use without gradients.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._checks import ArrayT, like, require_finite, require_shape, to_tensors
from tagseg._device import triton_available
from tagseg.errors import unknown_name

KERNELS = ("reference", "paper")
# Neighbors of a pixel in a 3x3 neighborhood.
OFFSETS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


def pamr(
    image: ArrayT,
    masks: ArrayT,
    *,
    dilations: Sequence[int] = (1, 2, 4, 8, 12, 24),
    iterations: int = 10,
    kernel: str = "reference",
    present: ArrayT | None = None,
) -> ArrayT:
    """Refine masks iteratively (Eq. 7): each pixel becomes a weighted mean of its neighbors.

    Neighbors of similar color have larger weights (Eq. 8). The weights of a pixel sum to 1, so the sum of the masks at
    a pixel and the range of each mask are preserved. Masks do not influence each other.

    Differentiable in the masks and in the image. Without gradients it is faster and needs less memory.

    The arguments are torch tensors or numpy arrays, all of the same kind and in the same layout, and the result is of
    that kind.

    Args:
        image: Image in [0, 1], not normalized, [B, 3, H, W] (any number of channels).
        masks: Masks, [B, C, h, w]; smaller ones are first upsampled to the image (bilinear, `align_corners=True`).
        dilations: Dilations of the 3x3 neighborhoods that are combined.
        iterations: Number of iterations; 0 only upsamples the masks.
        kernel: `reference` divides color differences by a tenth of their local standard deviation, as the published
            implementation does; `paper` divides by the local variance (Eq. 8).
        present: Which masks to refine, 0 or 1, [B, C]; all by default. The others are only upsampled.

    Returns:
        The refined masks, [B, C, H, W].
    """
    tensors = to_tensors(image=image, masks=masks, present=present)
    _check(*tensors, dilations=dilations, iterations=iterations, kernel=kernel)
    return like(refine_masks(*tensors, dilations=dilations, iterations=iterations, kernel=kernel), masks)


def refine_masks(
    image: Tensor,
    masks: Tensor,
    present: Tensor | None = None,
    *,
    dilations: Sequence[int],
    iterations: int,
    kernel: str,
) -> Tensor:
    """Refine masks as `pamr` does, without its checks, which would synchronize with a GPU."""
    if masks.shape[-2:] != image.shape[-2:]:
        masks = F.interpolate(masks, size=image.shape[-2:], mode="bilinear", align_corners=True)
    if iterations == 0 or masks.numel() == 0:
        return masks
    needs_gradients = torch.is_grad_enabled() and (image.requires_grad or masks.requires_grad)
    refine = refine_plain
    if not needs_gradients and masks.dtype != torch.float64:
        if masks.device.type == "cpu":
            from tagseg.refine import _pamr_cpu  # imports this module

            refine = _pamr_cpu.refine
        elif triton_available(masks):
            from tagseg.refine import _pamr_triton  # Triton is not available on every platform

            refine = _pamr_triton.refine
    return refine(image, masks, present, dilations=dilations, iterations=iterations, kernel=kernel)


def refine_plain(
    image: Tensor, masks: Tensor, present: Tensor | None, *, dilations: Sequence[int], iterations: int, kernel: str
) -> Tensor:
    """Refine masks of the image's size in plain torch operators: on every device, in every dtype, differentiable.

    Neighbors are added one after another, so they are never in memory at the same time.
    """
    # Half precision cannot represent the kernel's epsilon.
    dtype = torch.promote_types(masks.dtype, torch.float32)
    weights = _affinities(image.to(dtype), dilations, kernel).to(masks.dtype)
    refined = masks
    for _ in range(iterations):
        refined = _weighted_mean(refined, weights, dilations)
    return refined if present is None else torch.where(present.bool()[:, :, None, None], refined, masks)


def _affinities(image: Tensor, dilations: Sequence[int], kernel: str) -> Tensor:
    """Compute each pixel's affinities to its neighbors, [B, neighbors, H, W]: the softmax over the kernel's values."""
    # The deviation is over the 3x3 pixels of every dilation, so the center counts once per dilation. Sums of
    # differences to the center are exact where the image is nearly flat, where sums of squared colors would cancel.
    values = 9 * len(dilations)
    total, squares = torch.zeros_like(image), torch.zeros_like(image)
    for neighbor in _neighbors(image, dilations):
        difference = neighbor - image
        total, squares = total + difference, squares + difference**2
    scale = color_scale(total, squares, values, kernel)
    batch, _, height, width = image.shape
    affinity = image.new_empty(batch, 8 * len(dilations), height, width)
    for index, neighbor in enumerate(_neighbors(image, dilations)):
        affinity[:, index] = -((neighbor - image).abs() / scale).mean(1)  # Eq. 8, averaged over the channels
    return affinity.softmax(dim=1)  # alpha of Eq. 7


def color_scale(total: Tensor, squares: Tensor, values: int, kernel: str) -> Tensor:
    """Compute the divisor of color differences: the local variance (Eq. 8) or a tenth of the standard deviation.

    Args:
        total: Sum of the differences to the center.
        squares: Sum of the squared differences.
        values: Number of values.
        kernel: `paper` or `reference`.
    """
    variance = ((squares - total**2 / values) / (values - 1)).clamp_min(0)  # Eq. 8, sigma squared
    return 1e-8 + (0.1 * variance.sqrt() if kernel == "reference" else variance)


def _weighted_mean(masks: Tensor, weights: Tensor, dilations: Sequence[int]) -> Tensor:
    """Compute one iteration. The padded copy of the masks is freed on return, before the next one is allocated."""
    mean = torch.zeros_like(masks)
    for index, neighbor in enumerate(_neighbors(masks, dilations)):
        mean.addcmul_(weights[:, index : index + 1], neighbor)  # Eq. 7
    return mean


def _neighbors(maps: Tensor, dilations: Sequence[int]) -> Iterator[Tensor]:
    """Yield maps [..., H, W] shifted to each neighbor in turn; the border is replicated."""
    height, width = maps.shape[-2:]
    border = max(dilations)
    padded = F.pad(maps, (border, border, border, border), mode="replicate")
    for dilation in dilations:
        for dy, dx in OFFSETS:
            top, left = border + dy * dilation, border + dx * dilation
            yield padded[..., top : top + height, left : left + width]


def _check(
    image: Tensor,
    masks: Tensor,
    present: Tensor | None = None,
    *,
    dilations: Sequence[int],
    iterations: int,
    kernel: str,
) -> None:
    """Raise a ValueError that names the wrong argument."""
    require_shape("image", image, "[B, 3, H, W]")
    require_shape("masks", masks, "[B, C, h, w]")
    if image.shape[0] != masks.shape[0]:
        raise ValueError(f"image and masks must have the same batch size, got {image.shape[0]} and {masks.shape[0]}")
    (height, width), (rows, columns) = image.shape[-2:], masks.shape[-2:]
    # A network's stride rounds each side up or down; a larger difference is a mask of another image or a rotated one.
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
        raise ValueError(f"dilations must be one or more positive integers, got {tuple(dilations)}")
    if iterations < 0:
        raise ValueError(f"iterations must be 0 or more, got {iterations}")
    if kernel not in KERNELS:
        raise unknown_name("PAMR kernel", kernel, KERNELS)
    require_finite("image", image)
    require_finite("masks", masks)
    if present is not None:
        require_shape("present", present, "[B, C]")
        if present.shape != masks.shape[:2]:
            raise ValueError(
                f"present must be [B, C] = {list(masks.shape[:2])}, got a tensor of shape {list(present.shape)}"
            )
        if not ((present == 0) | (present == 1)).all():
            raise ValueError("present must be 0 or 1 for each mask, got other values")
