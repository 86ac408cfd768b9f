"""What a network is trained for: its tags, and after the first epochs its own refined masks."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.models import Segmentation
from tagseg.refine.pamr import refine_masks
from tagseg.training.losses import classification_loss, image_losses
from tagseg.training.pseudo import IGNORE, sure_pixels
from tagseg.training.recipe import PseudoLabelSettings


class Losses(NamedTuple):
    """The losses of a batch.

    Attributes:
        total: what is minimised.
        classification: of the tags.
        segmentation: of the masks; 0 where they are not trained.
        supervised: the share of images whose pseudo mask has all their classes.
        scores: the class scores, [B, C].
    """

    total: Tensor
    classification: Tensor
    segmentation: Tensor
    supervised: Tensor
    scores: Tensor


class Tags(NamedTuple):
    """The tags of a batch, with what a GPU would have to be waited for: where each image's own classes are.

    Attributes:
        tags: 0 or 1, [B, C].
        planes: the masks that an image needs: 0 for the background, then 1 + its classes; those that have fewer than
            the most of the batch are filled up with others, [B, 1 + most].
        present: which of these, without the background, are its own, [B, most].
    """

    tags: Tensor
    planes: Tensor
    present: Tensor

    @classmethod
    def of(cls, tags: Tensor, device: torch.device) -> "Tags":
        """From tags [B, C], best while they are still on the CPU."""
        most = int(tags.sum(1).max())
        own = tags.argsort(dim=1, descending=True, stable=True)[:, :most]
        parts = (tags, F.pad(own + 1, (1, 0)), tags.gather(1, own))
        return cls(*(part.to(device, non_blocking=True) for part in parts))


def objective(
    network: nn.Module,
    images: Tensor,
    tags: Tags,
    *,
    normalise: Callable[[Tensor], Tensor],
    settings: PseudoLabelSettings | None,
) -> Losses:
    """Run a network on a batch and compare.

    Args:
        network: the method's, or the CAM baseline.
        images: in [0, 1], [B, 3, H, W].
        tags: of these images.
        normalise: the network's own `normalise`; the network itself may be wrapped by now.
        settings: how masks supervise themselves; None trains the tags alone.
    """
    out: Segmentation = network(normalise(images), full_size=False)
    classification = classification_loss(out.scores, tags.tags)
    if settings is None:
        nothing = torch.zeros_like(classification)
        return Losses(classification, classification, nothing, nothing, out.scores)
    pseudo = pseudo_of_own(images, out.masks, tags, settings)
    each = image_losses(out.logits, pseudo, tags.tags, weighting=settings.weighting)
    segmentation = each.sum() if settings.weighting == "paper" else each.mean()
    total = classification + settings.loss_weight * segmentation
    return Losses(total, classification, segmentation, (each > 0).float().mean(), out.scores)


@torch.no_grad()
def pseudo_of_own(images: Tensor, masks: Tensor, tags: Tags, settings: PseudoLabelSettings) -> Tensor:
    """Pseudo labels out of the masks of each image's own classes: no other one can become a label."""
    own = masks.gather(1, tags.planes[..., None, None].expand(-1, -1, *masks.shape[-2:]))
    refined = refine(images, own, settings, present=F.pad(tags.present, (1, 0), value=1))
    sure = pseudo_of(refined, tags.present, images, settings)
    # From the place among the image's own planes to the class; what is ignored stays so.
    classes = tags.planes.gather(1, sure.clamp_min(0).flatten(1)).view_as(sure)
    return torch.where(sure == IGNORE, sure, classes)


def pseudo_of(refined: Tensor, tags: Tensor, images: Tensor, settings: PseudoLabelSettings) -> Tensor:
    """Pseudo labels at the images' size, by a recipe's thresholds."""
    return sure_pixels(
        refined,
        tags,
        size=(images.shape[-2], images.shape[-1]),
        foreground=settings.foreground_threshold,
        background=settings.background_threshold,
        lowest=settings.min_threshold,
    )


@torch.no_grad()
def refine(images: Tensor, masks: Tensor, settings: PseudoLabelSettings, *, present: Tensor | None = None) -> Tensor:
    """Refine masks, or those that are present, at their own resolution, to which the images are reduced."""
    if settings.refine == "none":
        return masks
    small = F.interpolate(images, size=masks.shape[-2:], mode="bilinear", align_corners=True)
    return refine_masks(
        small,
        masks,
        dilations=settings.dilations,
        iterations=settings.iterations,
        kernel=settings.kernel,
        present=present,
    )
