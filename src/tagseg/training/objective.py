"""What a network learns: classification and self-supervised segmentation from image tags, or the pixels of masks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.data.masks import IGNORE_LABEL
from tagseg.models import Segmentation
from tagseg.models.base import enlarge_in_training
from tagseg.refine.pamr import refine_masks
from tagseg.refine.random_walk import random_walk
from tagseg.training.distributed import average_over_processes
from tagseg.training.losses import classification_loss, image_losses, reduce_losses
from tagseg.training.pseudo_labels import UNLABELED, confident_pixels
from tagseg.training.recipe import PseudoLabelSettings


class Losses(NamedTuple):
    """Losses of a batch.

    Attributes:
        total: Loss to minimize.
        classification: Loss of the image-level labels.
        segmentation: Loss of the pseudo labels; 0 if they are not trained on.
        labeled_share: Share of the images with pseudo labels of all their classes, or of labeled pixels in masks.
        scores: Class scores, [B, C].
    """

    total: Tensor
    classification: Tensor
    segmentation: Tensor
    labeled_share: Tensor
    scores: Tensor


class Objective(Protocol):
    """What a network learns: losses of its batches."""

    def losses(
        self,
        network: nn.Module,
        images: Tensor,
        targets: Tensor,
        *,
        normalize: Callable[[Tensor], Tensor],
        deep: Tensor | None = None,
    ) -> Losses:
        """Run a network, or a wrapper of it, on images in [0, 1], [B, 3, H, W], and compute its losses.

        Args:
            network: Network, or a wrapper of it.
            images: Images in [0, 1], [B, 3, H, W].
            targets: Labels or masks, on the CPU.
            normalize: `Network.normalize`, which a wrapper does not have.
            deep: Deep maps of the backbone, where they are known.
        """

    def labels(self, targets: Tensor) -> Tensor:
        """Image-level labels of the targets, [B, C]."""

    def describe(self, metrics: Mapping[str, float]) -> str:
        """Losses in words, for the progress display."""


class BatchLabels(NamedTuple):
    """Image-level labels of a batch, with the channels of each image's classes.

    The channels are found on the CPU, where nothing waits for a GPU.

    Attributes:
        labels: 0 or 1, [B, C].
        channels: Mask channels that an image needs, the background's first, [B, 1 + M] for at most M classes an image;
            images with fewer classes have channels of other classes in the remaining places.
        present: Which of these channels, without the background's, are of the image's classes, [B, M].
    """

    labels: Tensor
    channels: Tensor
    present: Tensor

    @classmethod
    def on_device(cls, labels: Tensor, device: torch.device) -> "BatchLabels":
        """Make from labels [B, C] on the CPU."""
        most = int(labels.sum(1).max())
        classes = labels.argsort(dim=1, descending=True, stable=True)[:, :most]
        parts = (labels, F.pad(classes + 1, (1, 0)), labels.gather(1, classes))
        return cls(*(part.to(device, non_blocking=True) for part in parts))


def compute_losses(
    network: nn.Module,
    images: Tensor,
    labels: BatchLabels,
    *,
    normalize: Callable[[Tensor], Tensor],
    settings: PseudoLabelSettings | None,
    deep: Tensor | None = None,
    teacher: nn.Module | None = None,
) -> Losses:
    """Run a network on a batch and compute its losses.

    Args:
        network: Network, or a wrapper of it.
        images: Images in [0, 1], [B, 3, H, W].
        labels: Labels of the images.
        normalize: `Network.normalize`, which a wrapper does not have.
        settings: Settings of the pseudo labels; None trains on the image-level labels alone.
        deep: Deep maps of the backbone, where they are known.
        teacher: Network whose masks become pseudo labels, in evaluation mode; by default the one in training.
    """
    inputs, features = normalize(images), {} if deep is None else {"deep": deep}
    out: Segmentation = network(inputs, full_size=False, **features)
    classification = classification_loss(out.scores, labels.labels)
    if settings is None:
        zero = torch.zeros_like(classification)
        return Losses(classification, classification, zero, zero, out.scores)
    with torch.no_grad():
        teacher_output: Segmentation = out if teacher is None else teacher(inputs, full_size=False, **features)
    pseudo = batch_pseudo_labels(images, teacher_output.masks, labels, settings, tokens=teacher_output.tokens)
    # Only the main process validates.
    average = average_over_processes if network.training else lambda value: value
    losses = image_losses(out.logits, pseudo, labels.labels, weighting=settings.weighting, average=average)
    segmentation = reduce_losses(losses, settings.weighting)
    total = classification + settings.loss_weight * segmentation
    return Losses(total, classification, segmentation, (losses > 0).float().mean(), out.scores)


@torch.no_grad()
def batch_pseudo_labels(
    images: Tensor,
    masks: Tensor,
    labels: BatchLabels,
    settings: PseudoLabelSettings,
    *,
    tokens: Tensor | None = None,
) -> Tensor:
    """Pseudo labels of a batch, [B, H, W]; only the masks of each image's classes are refined."""
    needed = masks.gather(1, labels.channels[..., None, None].expand(-1, -1, *masks.shape[-2:]))
    refined = refine_masks_of(images, needed, settings, tokens=tokens, present=F.pad(labels.present, (1, 0), value=1))
    positions = threshold_masks(refined, labels.present, images, settings)
    # From the position among an image's channels to the class.
    classes = labels.channels.gather(1, positions.clamp_min(0).flatten(1)).view_as(positions)
    return torch.where(positions == UNLABELED, positions, classes)


def threshold_masks(refined: Tensor, labels: Tensor, images: Tensor, settings: PseudoLabelSettings) -> Tensor:
    """Pseudo labels of refined masks at the images' size, [B, H, W], by a recipe's thresholds."""
    return confident_pixels(
        refined,
        labels,
        size=(images.shape[-2], images.shape[-1]),
        foreground_threshold=settings.foreground_threshold,
        background_threshold=settings.background_threshold,
        min_threshold=settings.min_threshold,
    )


@torch.no_grad()
def refine_masks_of(
    images: Tensor,
    masks: Tensor,
    settings: PseudoLabelSettings,
    *,
    tokens: Tensor | None = None,
    present: Tensor | None = None,
) -> Tensor:
    """Refine masks at their own resolution, as a recipe says.

    Args:
        images: Images in [0, 1], [B, 3, H, W]; reduced to the masks' size.
        masks: Masks, [B, K, h, w].
        settings: Settings of the refinement.
        tokens: Tokens of a vision transformer, [B, D, h, w], for the random walk.
        present: Masks that are needed, [B, K]; the others may stay as they are.
    """
    if settings.walk_steps and tokens is not None:
        walked = random_walk(masks, tokens, temperature=settings.walk_temperature, steps=settings.walk_steps)
        masks = F.interpolate(walked, masks.shape[-2:], mode="bilinear", align_corners=False)
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


@dataclass(frozen=True)
class TagObjective:
    """What a network learns from image tags: an `Objective`.

    Attributes:
        settings: Settings of the pseudo labels; None trains on the image-level labels alone.
        teacher: Network whose masks become pseudo labels; by default the one in training.
    """

    settings: PseudoLabelSettings | None
    teacher: nn.Module | None = None

    def losses(
        self,
        network: nn.Module,
        images: Tensor,
        targets: Tensor,
        *,
        normalize: Callable[[Tensor], Tensor],
        deep: Tensor | None = None,
    ) -> Losses:
        """Losses of a batch; the targets are labels, [B, C], on the CPU."""
        labels = BatchLabels.on_device(targets, images.device)
        return compute_losses(
            network, images, labels, normalize=normalize, settings=self.settings, deep=deep, teacher=self.teacher
        )

    def labels(self, targets: Tensor) -> Tensor:
        """Image-level labels of the targets, [B, C]."""
        return targets

    def describe(self, metrics: Mapping[str, float]) -> str:
        """Losses in words, for the progress display."""
        if self.settings is None:
            return f"loss {metrics['loss']:.3f} (classification only)"
        return (
            f"loss {metrics['loss']:.3f} (classification {metrics['classification']:.3f}, segmentation "
            f"{metrics['segmentation']:.3f}), images with pseudo labels {100 * metrics['labeled_share']:.0f} %"
        )


@dataclass(frozen=True)
class MaskObjective:
    """Cross-entropy of the pixels of masks, [B, H, W]: an `Objective`.

    Attributes:
        num_classes: Number of classes without the background.
    """

    num_classes: int

    def losses(
        self,
        network: nn.Module,
        images: Tensor,
        targets: Tensor,
        *,
        normalize: Callable[[Tensor], Tensor],
        deep: Tensor | None = None,
    ) -> Losses:
        """Losses of a batch; a batch without a labeled pixel has the loss 0."""
        masks = targets.to(images.device, non_blocking=True).long()
        features = {} if deep is None else {"deep": deep}
        out: Segmentation = network(normalize(images), full_size=False, **features)
        logits = enlarge_in_training(out.logits, masks.shape[-2:])
        is_labeled = masks != IGNORE_LABEL
        count = is_labeled.sum()
        if network.training:  # only the main process validates
            count = average_over_processes(count)
        loss = F.cross_entropy(logits, masks, ignore_index=IGNORE_LABEL, reduction="sum") / count.clamp_min(1)
        return Losses(loss, torch.zeros_like(loss), loss, is_labeled.float().mean(), out.scores)

    def labels(self, targets: Tensor) -> Tensor:
        """Classes that have a pixel, [B, C]."""
        return torch.stack([classes_in(mask, self.num_classes) for mask in targets])

    def describe(self, metrics: Mapping[str, float]) -> str:
        """Losses in words, for the progress display."""
        return f"loss {metrics['loss']:.3f}, labeled pixels {100 * metrics['labeled_share']:.0f} %"


def classes_in(mask: Tensor, num_classes: int) -> Tensor:
    """Which classes have a pixel in a mask, uint8 [H, W]: 0 or 1, [C]."""
    counts = torch.bincount(mask.flatten().int(), minlength=IGNORE_LABEL + 1)
    return (counts[1 : 1 + num_classes] > 0).float()
