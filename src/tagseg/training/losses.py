"""The losses: image labels against the scores (Eq. 6), pseudo labels against the masks (Supp. B.2)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._checks import require_shape
from tagseg.errors import unknown_name
from tagseg.training.pseudo import IGNORE, check_labels

# Eq. 6, which PyTorch has: the mean over classes and images of the binary cross-entropy of the scores.
classification_loss = F.multilabel_soft_margin_loss

WEIGHTINGS = ("reference", "paper")


def self_supervised_loss(
    logits: Tensor, pseudo: Tensor, labels: Tensor, *, weighting: str = "reference", reduction: str = "mean"
) -> Tensor:
    """Class-balanced cross-entropy of the masks with their own pseudo labels (Supp. B.2).

    A pixel's loss is weighted by the share of supervised pixels that are not of its class, so that a large background
    does not drown a small object. An image counts only if every class that it is tagged with, and the background, has
    a pixel, and no other class has one: the loss of an image that is rejected is 0.

    Args:
        logits: scores per pixel, background first, [B, 1 + C, h, w]; enlarged to the pseudo labels' size.
        pseudo: what `pseudo_labels` returned, [B, H, W].
        labels: which classes each image has, 0 or 1, [B, C].
        weighting: `reference` averages over the images, as the published implementation does; `paper` weights each
            by its number of supervised pixels.
        reduction: `mean` gives one number; `none` each image's, whose mean (`reference`) or sum (`paper`) it is.

    Returns:
        The loss, a scalar or [B].
    """
    _check(logits, pseudo, labels, weighting, reduction)
    losses = image_losses(logits, pseudo.long(), labels, weighting=weighting)
    if reduction == "none":
        return losses
    return losses.sum() if weighting == "paper" else losses.mean()


def image_losses(logits: Tensor, pseudo: Tensor, labels: Tensor, *, weighting: str) -> Tensor:
    """Each image's `self_supervised_loss`, [B], of input that is sound: looking at it would make a GPU wait."""
    channels = torch.arange(logits.shape[1], device=pseudo.device)[:, None]
    counts = (pseudo.flatten(1)[:, None] == channels).sum(-1)
    supervised = counts.sum(1, keepdim=True)
    class_weights = (supervised - counts) / (1 + supervised)
    accepted = ((counts > 0) == F.pad(labels, (1, 0), value=1).bool()).all(1)

    losses = torch.where(accepted, enlarged_cross_entropy(logits, pseudo, class_weights), 0.0)
    if weighting == "paper":
        share = torch.where(accepted, supervised[:, 0], 0.0)
        losses = losses * share / share.sum().clamp_min(1)
    return losses


def enlarged_cross_entropy(logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
    """Each image's weighted cross-entropy, averaged over all of its pixels, [B].

    Args:
        logits: scores per pixel, [B, K, h, w]; enlarged to the labels' size (bilinear, corners aligned).
        labels: a class for each pixel, or a negative number for pixels that do not count, int64 [B, H, W].
        class_weights: the weight of each class's pixels, [B, K]; no gradient goes there.
    """
    enlarged = F.interpolate(logits, size=labels.shape[-2:], mode="bilinear", align_corners=True)
    counted = labels.clamp_min(0)
    losses = F.cross_entropy(enlarged, counted, reduction="none").flatten(1)
    weights = class_weights.gather(1, counted.flatten(1)).masked_fill(labels.flatten(1) < 0, 0)
    return (losses * weights).mean(1)


def _check(logits: Tensor, pseudo: Tensor, labels: Tensor, weighting: str, reduction: str) -> None:
    require_shape("logits", logits, "[B, 1 + C, h, w]")
    require_shape("pseudo", pseudo, "[B, H, W]")
    if logits.shape[0] != pseudo.shape[0]:
        raise ValueError(f"logits and pseudo must be of one batch size, got {logits.shape[0]} and {pseudo.shape[0]}")
    check_labels(labels, batch=logits.shape[0], classes=logits.shape[1] - 1)
    if pseudo.is_floating_point() or not IGNORE <= int(pseudo.min()) <= int(pseudo.max()) < logits.shape[1]:
        raise ValueError(f"pseudo must hold whole numbers from {IGNORE} (ignored) to {logits.shape[1] - 1}")
    if weighting not in WEIGHTINGS:
        raise unknown_name("weighting", weighting, WEIGHTINGS)
    if reduction not in ("mean", "none"):
        raise unknown_name("reduction", reduction, ("mean", "none"))
