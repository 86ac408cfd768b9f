"""Pseudo ground truth (Sec. 3.3): the pixels of refined masks that are sure enough to learn from."""

import torch.nn.functional as F
from torch import Tensor

from tagseg._checks import require_finite, require_shape

IGNORE = -1


def pseudo_labels(
    masks: Tensor,
    labels: Tensor,
    *,
    size: tuple[int, int] | None = None,
    foreground: float = 0.6,
    background: float = 0.7,
    lowest: float = 0.2,
) -> Tensor:
    """The class of each pixel that is sure of exactly one class, and `IGNORE` (-1) elsewhere.

    A pixel is sure of a class where its mask exceeds a share of that mask's own maximum in the image. Classes that
    the image is not tagged with are never taken. A pixel that is sure of two classes is ignored.

    Args:
        masks: refined masks, background first, [B, 1 + C, h, w].
        labels: which classes each image has, 0 or 1, [B, C].
        size: height and width to enlarge the masks to first (bilinear, corners aligned), such as the crop's.
        foreground: the share of its maximum that a class has to exceed.
        background: the same for the background.
        lowest: what the threshold never falls below, so that a class without any evidence gets no pixel; the paper's
            text has no such bound, which is 0.

    Returns:
        Class indices, 0 for the background, [B, H, W].
    """
    _check(masks, labels)
    for name, value in (("foreground", foreground), ("background", background), ("lowest", lowest)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return sure_pixels(masks, labels, size=size, foreground=foreground, background=background, lowest=lowest)


def sure_pixels(
    masks: Tensor,
    labels: Tensor,
    *,
    size: tuple[int, int] | None,
    foreground: float,
    background: float,
    lowest: float,
) -> Tensor:
    """`pseudo_labels` of input that is sound: looking at it would make a GPU wait."""
    masks = masks.detach()
    if size is not None and tuple(masks.shape[-2:]) != tuple(size):
        masks = F.interpolate(masks, size=size, mode="bilinear", align_corners=True)
    shares = masks.new_full((masks.shape[1], 1, 1), foreground)
    shares[0] = background
    thresholds = (masks.amax((2, 3), keepdim=True) * shares).clamp_min(lowest)
    present = F.pad(labels.bool(), (1, 0), value=True)  # the background is always there
    sure = (masks > thresholds) & present[..., None, None]
    return sure.int().argmax(1).masked_fill_(sure.sum(1) != 1, IGNORE)


def _check(masks: Tensor, labels: Tensor) -> None:
    require_shape("masks", masks, "[B, 1 + C, h, w]")
    check_labels(labels, batch=masks.shape[0], classes=masks.shape[1] - 1)
    require_finite("masks", masks)


def check_labels(labels: Tensor, *, batch: int, classes: int) -> None:
    """Refuse image labels that are not 0 or 1, or not of this batch and number of classes."""
    if tuple(labels.shape) != (batch, classes):
        raise ValueError(f"labels must be [{batch}, {classes}], one column a class, got shape {list(labels.shape)}")
    strange = labels[(labels != 0) & (labels != 1)]
    if strange.numel():
        raise ValueError(f"labels must be 0 or 1, got {strange[0].item()}")
