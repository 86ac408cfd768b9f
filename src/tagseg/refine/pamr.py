"""Pixel-Adaptive Mask Refinement (Sec. 3.3): masks pulled to the image's own boundaries, without any parameter."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._checks import require_finite, require_shape
from tagseg._triton import triton_available
from tagseg.errors import unknown_name
from tagseg.refine import _pamr_cpu, _pamr_plain

KERNELS = ("reference", "paper")


def pamr(
    image: Tensor,
    masks: Tensor,
    *,
    dilations: Sequence[int] = (1, 2, 4, 8, 12, 24),
    iterations: int = 10,
    kernel: str = "reference",
    present: Tensor | None = None,
) -> Tensor:
    """Refine masks by the image (Eq. 7): each pixel becomes a weighted mean of its neighbours, again and again.

    A neighbour weighs more the more alike it looks. The weights of a pixel sum to 1, so the masks' sum at a pixel and
    each mask's range are kept. Each mask is refined by itself, and masks that need no refinement can be left out.

    Differentiable in the masks and in the image; faster, and in less memory, where no gradients are wanted.

    Args:
        image: the image in [0, 1], not normalised, [B, 3, H, W] (any number of channels).
        masks: the masks, [B, C, h, w]; if smaller than the image, they are enlarged to it first (bilinear, corners
            aligned).
        dilations: the 3x3 neighbourhoods that are taken together.
        iterations: how often; 0 returns the masks at the image's size.
        kernel: `reference` divides colour differences by a tenth of their local standard deviation, as the published
            implementation does; `paper` by the local variance (Eq. 8).
        present: which masks to refine, 0 or 1, [B, C]; the others come back as they are, at the image's size. All
            by default.

    Returns:
        The refined masks, [B, C, H, W].
    """
    _check(image, masks, dilations, iterations, kernel, present)
    return refine_masks(image, masks, dilations=dilations, iterations=iterations, kernel=kernel, present=present)


def refine_masks(
    image: Tensor,
    masks: Tensor,
    *,
    dilations: Sequence[int],
    iterations: int,
    kernel: str,
    present: Tensor | None = None,
) -> Tensor:
    """`pamr` without its checks, which would have to wait for a GPU; for callers who know their input is right."""
    if masks.shape[-2:] != image.shape[-2:]:
        masks = F.interpolate(masks, size=image.shape[-2:], mode="bilinear", align_corners=True)
    if iterations == 0 or masks.numel() == 0:
        return masks
    differentiable = torch.is_grad_enabled() and (image.requires_grad or masks.requires_grad)
    refine = _pamr_plain.refine
    if not differentiable and masks.dtype != torch.float64:
        if masks.device.type == "cpu":
            refine = _pamr_cpu.refine
        elif triton_available(masks):
            from tagseg.refine import _pamr_triton  # not before: Triton is not everywhere

            refine = _pamr_triton.refine
    return refine(image, masks, present, dilations=dilations, iterations=iterations, kernel=kernel)


def _check(
    image: Tensor, masks: Tensor, dilations: Sequence[int], iterations: int, kernel: str, present: Tensor | None
) -> None:
    require_shape("image", image, "[B, 3, H, W]")
    require_shape("masks", masks, "[B, C, h, w]")
    if image.shape[0] != masks.shape[0]:
        raise ValueError(f"image and masks must be of one batch size, got {image.shape[0]} and {masks.shape[0]}")
    (height, width), (rows, columns) = image.shape[-2:], masks.shape[-2:]
    # A network's stride rounds each side up or down; more than that is another image's mask, or one on its side.
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
    if present is not None:
        require_shape("present", present, "[B, C]")
        if present.shape != masks.shape[:2]:
            raise ValueError(
                f"present must say 0 or 1 for each mask, {list(masks.shape[:2])}, got a tensor of shape "
                f"{list(present.shape)}"
            )
        if not ((present == 0) | (present == 1)).all():
            raise ValueError("present must be 0 or 1 for each mask, got other values")
