"""Losses: image-level labels against class scores (Eq. 6), pseudo labels against pixel scores (Supp. B.2)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._checks import require_shape
from tagseg.errors import unknown_name
from tagseg.training.pseudo_labels import UNLABELED, check_labels

WEIGHTINGS = ("reference", "paper", "pixels")

# Eq. 6: the mean over classes and images of the binary cross-entropy of the scores.
classification_loss = F.multilabel_soft_margin_loss


def self_supervised_loss(
    logits: Tensor, pseudo: Tensor, labels: Tensor, *, weighting: str = "reference", reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of pixel scores with pseudo labels, class-balanced as in Supp. B.2, or plain.

    The loss of a pixel is weighted by the share of labeled pixels of other classes, so that a large background does
    not outweigh a small object. An image whose classes, with the background, do not all have a pixel, or that has a
    pixel of another class, has a loss of 0.

    Args:
        logits: Class scores per pixel, background first, [B, 1 + C, h, w]; enlarged to the size of `pseudo`.
        pseudo: Result of `pseudo_labels`, [B, H, W].
        labels: Image-level labels, 0 or 1, [B, C].
        weighting: `reference` averages over the images, as the published code does; `paper` weights images by their
            number of labeled pixels; `pixels` is the plain cross-entropy, in which all labeled pixels of the batch have
            the same weight, whatever their class and image.
        reduction: `mean` returns one number; `none` returns a value for each image, whose mean (`reference`) or sum
            (`paper` and `pixels`) it is.

    Returns:
        The loss, a scalar or [B].
    """
    _check(logits, pseudo, labels, weighting, reduction)
    losses = image_losses(logits, pseudo.long(), labels, weighting=weighting)
    return losses if reduction == "none" else reduce_losses(losses, weighting)


def reduce_losses(losses: Tensor, weighting: str) -> Tensor:
    """Loss of a batch from `image_losses`."""
    return losses.mean() if weighting == "reference" else losses.sum()


def image_losses(
    logits: Tensor,
    pseudo: Tensor,
    labels: Tensor,
    *,
    weighting: str,
    average: Callable[[Tensor], Tensor] = lambda value: value,
) -> Tensor:
    """`self_supervised_loss` of each image, [B], without checks of the values, which would wait for a GPU.

    Args:
        logits: As in `self_supervised_loss`, like the other arguments.
        pseudo: Pseudo labels.
        labels: Image-level labels.
        weighting: Weights of the images and pixels.
        average: Mean over the processes that share the batch, by which the number of labeled pixels is divided.
    """
    classes = torch.arange(logits.shape[1], device=pseudo.device)[:, None]
    counts = (pseudo.flatten(1)[:, None] == classes).sum(-1)
    labeled = counts.sum(1, keepdim=True)
    if weighting == "pixels":
        losses = enlarged_cross_entropy(logits, pseudo, torch.ones_like(counts, dtype=logits.dtype))
        return losses * pseudo[0].numel() / average(labeled.sum()).clamp_min(1)
    class_weights = (labeled - counts) / (1 + labeled)  # q_c, Supp. B.2
    # Sec. 3.3: images are discarded if one of their classes has no confident pixel.
    complete = ((counts > 0) == F.pad(labels, (1, 0), value=1).bool()).all(1)

    losses = torch.where(complete, enlarged_cross_entropy(logits, pseudo, class_weights), 0.0)
    if weighting == "paper":
        image_weights = torch.where(complete, labeled[:, 0], 0.0)
        losses = losses * image_weights / average(image_weights.sum()).clamp_min(1)  # L_seg, Supp. B.2
    return losses


def enlarged_cross_entropy(logits: Tensor, targets: Tensor, class_weights: Tensor) -> Tensor:
    """Weighted cross-entropy of each image, averaged over all of its pixels, [B].

    Args:
        logits: Class scores per pixel, [B, K, h, w]; enlarged to the size of `targets` (bilinear, corners aligned).
        targets: Class of each pixel, negative for pixels that do not count, int64 [B, H, W].
        class_weights: Weight of the pixels of each class, [B, K]; without gradient.
    """
    enlarged = F.interpolate(logits, size=targets.shape[-2:], mode="bilinear", align_corners=True)
    classes = targets.clamp_min(0)
    losses = F.cross_entropy(enlarged, classes, reduction="none").flatten(1)
    weights = class_weights.gather(1, classes.flatten(1)).masked_fill(targets.flatten(1) < 0, 0)
    return (losses * weights).mean(1)


def _check(logits: Tensor, pseudo: Tensor, labels: Tensor, weighting: str, reduction: str) -> None:
    require_shape("logits", logits, "[B, 1 + C, h, w]")
    require_shape("pseudo", pseudo, "[B, H, W]")
    if logits.shape[0] != pseudo.shape[0]:
        raise ValueError(f"logits and pseudo must be of one batch size, got {logits.shape[0]} and {pseudo.shape[0]}")
    check_labels(labels, batch=logits.shape[0], classes=logits.shape[1] - 1)
    if pseudo.is_floating_point() or not UNLABELED <= int(pseudo.min()) <= int(pseudo.max()) < logits.shape[1]:
        raise ValueError(f"pseudo must hold whole numbers from {UNLABELED} (ignored) to {logits.shape[1] - 1}")
    if weighting not in WEIGHTINGS:
        raise unknown_name("weighting", weighting, WEIGHTINGS)
    if reduction not in ("mean", "none"):
        raise unknown_name("reduction", reduction, ("mean", "none"))
