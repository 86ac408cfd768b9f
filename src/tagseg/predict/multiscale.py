"""Merge the masks of one image at several scales, plain and flipped (Sec. 4.1)."""

from collections.abc import Iterable, Sequence

import torch.nn.functional as F
from torch import Tensor

BACKGROUND_POWER = 3.0


def merge_scales(
    masks: Sequence[Tensor],
    size: tuple[int, int],
    *,
    flipped: Sequence[bool],
    labels: Tensor | None = None,
    background_power: float = BACKGROUND_POWER,
) -> Tensor:
    """The mean of an image's masks over scales and flips; of several images of one size with a dimension before.

    Args:
        masks: masks of each scale and flip, background first, each [1 + C, h, w] at its own size, without padding; or
            [B, 1 + C, h, w].
        size: the image's height and width, which the result has.
        flipped: which of them are of the mirrored image.
        labels: the classes to keep, 0 or 1, [C] or [B, C]; all of them by default.
        background_power: the exponent that discounts the background; the paper's text has none, which is 1.

    Returns:
        The merged masks, [1 + C, H, W] or [B, 1 + C, H, W]; they no longer sum to 1.
    """
    if not masks:
        raise ValueError("masks is empty; give the masks of at least one scale")
    if len(masks) != len(flipped):
        raise ValueError(f"masks and flipped must be of one length, got {len(masks)} and {len(flipped)}")
    return merge_views(
        zip(masks, flipped, strict=True), size, count=len(masks), labels=labels, background_power=background_power
    )


def merge_views(
    views: Iterable[tuple[Tensor, bool]],
    size: tuple[int, int],
    *,
    count: int,
    labels: Tensor | None,
    background_power: float,
) -> Tensor:
    """As `merge_scales`, for masks that come one after the other: at full size, all of them would fill a memory.

    Args:
        views: the masks of each scale and flip, and whether they are of the mirrored image.
        size: the image's height and width.
        count: how many views will come.
        labels: the classes to keep.
        background_power: the exponent that discounts the background.
    """
    merged = None
    for mask, mirrored in views:
        resized = mask if tuple(mask.shape[-2:]) == tuple(size) else _resize(mask, size)
        resized = resized.flip(-1) if mirrored else resized
        merged = resized / count if merged is None else merged.add_(resized, alpha=1 / count)
    assert merged is not None
    background, classes = merged.tensor_split([1], dim=-3)
    background.pow_(background_power)
    if labels is not None:
        classes *= labels.to(merged)[..., None, None]
    return merged


def _resize(mask: Tensor, size: tuple[int, int]) -> Tensor:
    batch = mask if mask.dim() == 4 else mask[None]
    return F.interpolate(batch, size=size, mode="bilinear", align_corners=False).view(*mask.shape[:-2], *size)
