"""Supervised training on masks: its objective, the labels that masks give, and the temperature of the result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg._progress import track
from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import IGNORE_LABEL, MaskDataset
from tagseg.models import Network, Segmentation
from tagseg.models.base import enlarge_in_training
from tagseg.training.distributed import average_over_processes
from tagseg.training.objective import Losses
from tagseg.training.recipe import TransformSettings
from tagseg.training.transforms import ValidationImages

_MAX_CALIBRATION_IMAGES = 200
_PIXELS_PER_IMAGE = 1024  # neighboring pixels tell the same about the temperature


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
        return f"loss {metrics['loss']:.3f}, labeled pixels {100 * metrics['supervised']:.0f} %"


def classes_in(mask: Tensor, num_classes: int) -> Tensor:
    """Which classes have a pixel in a mask, uint8 [H, W]: 0 or 1, [C]."""
    counts = torch.bincount(mask.flatten().int(), minlength=IGNORE_LABEL + 1)
    return (counts[1 : 1 + num_classes] > 0).float()


@torch.no_grad()
def calibrate(
    network: Network, data: ImageDataset, masks: MaskDataset, settings: TransformSettings, *, progress: bool = False
) -> float:
    """Temperature of a network's logits with the lowest negative log-likelihood of held-out masks.

    Supervised networks are over-confident; temperature scaling calibrates them for the CRF.

    Args:
        network: Trained network.
        data: Images that it was not trained on; some hundred are enough.
        masks: Their masks.
        settings: Transforms of the run.
        progress: Show the progress.
    """
    network.eval()
    images = ValidationImages(data, settings, masks)
    logits, classes = [], []
    count = min(len(images), _MAX_CALIBRATION_IMAGES)
    for index in track(range(count), "Choosing the temperature, image", count, quiet=not progress):
        image, mask = images[index]
        scores = network(network.normalize(image[None].to(network.mean.device).float() / 255), full_size=False).logits[
            0
        ]
        labels = F.interpolate(mask[None, None].float(), scores.shape[-2:], mode="nearest-exact")[0, 0].long()
        positions = (labels != IGNORE_LABEL).flatten().nonzero()[:, 0]
        positions = positions[:: max(1, len(positions) // _PIXELS_PER_IMAGE)]
        logits.append(scores.flatten(1).T[positions.to(scores.device)].cpu())
        classes.append(labels.flatten()[positions])
    return best_temperature(torch.cat(logits), torch.cat(classes))


def best_temperature(logits: Tensor, classes: Tensor, *, lowest: float = 0.25, highest: float = 8.0) -> float:
    """Temperature with the lowest negative log-likelihood, within bounds; 1 if there are no pixels.

    Args:
        logits: Scores of pixels, [N, C].
        classes: Their classes, [N].
        lowest: Lowest temperature.
        highest: Highest temperature.
    """
    if not len(classes):
        return 1.0
    low, high = 1 / highest, 1 / lowest
    for _ in range(30):  # the loss is convex in the inverse temperature: ternary search
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if F.cross_entropy(logits * left, classes) <= F.cross_entropy(logits * right, classes):
            high = right
        else:
            low = left
    return round(2 / (low + high), 4)
