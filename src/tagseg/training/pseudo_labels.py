"""Pseudo labels (Sec. 3.3): the pixels of refined masks that are confident enough to train on."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._checks import require_finite, require_shape

UNLABELED = -1  # pseudo label of pixels that do not count


def pseudo_labels(
    masks: Tensor,
    labels: Tensor,
    *,
    size: tuple[int, int] | None = None,
    foreground_threshold: float = 0.6,
    background_threshold: float = 0.7,
    min_threshold: float = 0.2,
) -> Tensor:
    """Label each pixel that is confident of exactly one class; others are `UNLABELED` (-1).

    A pixel is confident of a class if its mask value exceeds a share of that mask's maximum in the image. Classes that
    the image does not have are never used.

    Args:
        masks: Refined masks, background first, [B, 1 + C, h, w].
        labels: Image-level labels, 0 or 1, [B, C].
        size: Height and width to enlarge the masks to first (bilinear, corners aligned), such as the crop's.
        foreground_threshold: Share of its maximum that a class must exceed.
        background_threshold: Share of its maximum that the background must exceed.
        min_threshold: Lower bound of the thresholds, so that a class without evidence gets no pixel; 0 in the paper's
            text.

    Returns:
        Class indices, 0 for the background, [B, H, W].
    """
    require_shape("masks", masks, "[B, 1 + C, h, w]")
    check_labels(labels, batch=masks.shape[0], classes=masks.shape[1] - 1)
    require_finite("masks", masks)
    for name, value in (
        ("foreground_threshold", foreground_threshold),
        ("background_threshold", background_threshold),
        ("min_threshold", min_threshold),
    ):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return confident_pixels(
        masks,
        labels,
        size=size,
        foreground_threshold=foreground_threshold,
        background_threshold=background_threshold,
        min_threshold=min_threshold,
    )


def confident_pixels(
    masks: Tensor,
    labels: Tensor,
    *,
    size: tuple[int, int] | None,
    foreground_threshold: float,
    background_threshold: float,
    min_threshold: float,
) -> Tensor:
    """`pseudo_labels` without checks of the values, which would wait for a GPU."""
    masks = masks.detach()
    if size is not None and tuple(masks.shape[-2:]) != tuple(size):
        masks = F.interpolate(masks, size=size, mode="bilinear", align_corners=True)
    shares = masks.new_full((masks.shape[1], 1, 1), foreground_threshold)
    shares[0] = background_threshold
    # Sec. 3.3: a share of the mask's maximum, 60 % in the paper and 70 % for the background.
    thresholds = (masks.amax((2, 3), keepdim=True) * shares).clamp_min(min_threshold)
    present = F.pad(labels.bool(), (1, 0), value=True)  # every image has background
    confident = (masks > thresholds) & present[..., None, None]
    # Sec. 3.3: pixels that are confident of no class or of several are ignored. Where only one is confident, the sum of
    # the confident classes is that class; argmax takes a CPU ten times as long.
    classes = torch.arange(masks.shape[1], device=masks.device, dtype=torch.int32)[:, None, None]
    return (confident * classes).sum(1).masked_fill_(confident.sum(1) != 1, UNLABELED)


def check_labels(labels: Tensor, *, batch: int, classes: int) -> None:
    """Refuse image-level labels of another shape, or with values other than 0 and 1."""
    if tuple(labels.shape) != (batch, classes):
        raise ValueError(f"labels must be [{batch}, {classes}], one column a class, got shape {list(labels.shape)}")
    invalid = labels[(labels != 0) & (labels != 1)]
    if invalid.numel():
        raise ValueError(f"labels must be 0 or 1, got {invalid[0].item()}")
