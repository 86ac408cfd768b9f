"""What a network is trained for: its tags, and after the first epochs its own refined masks."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.models import Segmentation
from tagseg.refine.pamr import pamr
from tagseg.training.losses import classification_loss, self_supervised_loss
from tagseg.training.pseudo import pseudo_labels
from tagseg.training.recipe import SupervisionSettings


class Losses(NamedTuple):
    """The losses of a batch.

    Attributes:
        total: what is minimised.
        classification: of the tags.
        segmentation: of the masks; 0 where they are not trained.
        supervised: the share of pictures whose pseudo mask has all their classes.
        scores: the class scores, [B, C].
    """

    total: Tensor
    classification: Tensor
    segmentation: Tensor
    supervised: Tensor
    scores: Tensor


def objective(
    network: nn.Module,
    pictures: Tensor,
    tags: Tensor,
    *,
    normalise: Callable[[Tensor], Tensor],
    settings: SupervisionSettings | None,
) -> Losses:
    """Run a network on a batch and compare.

    Args:
        network: the method's, or the CAM baseline.
        pictures: in [0, 1], [B, 3, H, W].
        tags: 0 or 1, [B, C].
        normalise: the network's own `normalise`; the network itself may be wrapped by now.
        settings: how masks supervise themselves; None trains the tags alone.
    """
    out: Segmentation = network(normalise(pictures), full_size=False)
    classification = classification_loss(out.scores, tags)
    if settings is None:
        nothing = torch.zeros_like(classification)
        return Losses(classification, classification, nothing, nothing, out.scores)
    pseudo = pseudo_of(refine(pictures, out.masks.detach(), settings), tags, pictures, settings)
    each = self_supervised_loss(out.logits, pseudo, tags, weighting=settings.weighting, reduction="none")
    segmentation = each.sum() if settings.weighting == "paper" else each.mean()
    total = classification + settings.weight * segmentation
    return Losses(total, classification, segmentation, (each > 0).float().mean(), out.scores)


def pseudo_of(refined: Tensor, tags: Tensor, pictures: Tensor, settings: SupervisionSettings) -> Tensor:
    """Pseudo labels at the pictures' size, by a recipe's thresholds."""
    return pseudo_labels(
        refined,
        tags,
        size=(pictures.shape[-2], pictures.shape[-1]),
        foreground=settings.foreground,
        background=settings.background,
        lowest=settings.lowest,
    )


@torch.no_grad()
def refine(pictures: Tensor, masks: Tensor, settings: SupervisionSettings) -> Tensor:
    """Refine masks at their own resolution, to which the pictures are reduced."""
    if settings.refine == "none":
        return masks
    small = F.interpolate(pictures, size=masks.shape[-2:], mode="bilinear", align_corners=True)
    return pamr(small, masks, dilations=settings.dilations, iterations=settings.iterations, kernel=settings.kernel)
