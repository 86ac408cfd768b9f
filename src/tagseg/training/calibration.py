"""Calibration of a network that was trained on masks: the temperature of its probabilities."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._progress import track
from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import IGNORE_LABEL, MaskDataset
from tagseg.models import Network
from tagseg.training.recipe import TransformSettings
from tagseg.training.transforms import ValidationImages

_MAX_IMAGES = 200
_PIXELS_PER_IMAGE = 1024  # neighboring pixels tell the same about the temperature
_LOWEST, _HIGHEST = 0.25, 8.0  # temperature


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
    count = min(len(images), _MAX_IMAGES)
    for index in track(range(count), "Choosing the temperature, image", count, quiet=not progress):
        image, mask = images[index]
        pixels = image[None].to(network.mean.device).float() / 255
        scores = network(network.normalize(pixels), full_size=False).logits[0]
        targets = F.interpolate(mask[None, None].float(), scores.shape[-2:], mode="nearest-exact")[0, 0].long()
        positions = (targets != IGNORE_LABEL).flatten().nonzero()[:, 0]
        positions = positions[:: max(1, len(positions) // _PIXELS_PER_IMAGE)]
        logits.append(scores.flatten(1).T[positions.to(scores.device)].cpu())
        classes.append(targets.flatten()[positions])
    return best_temperature(torch.cat(logits), torch.cat(classes))


def best_temperature(logits: Tensor, classes: Tensor) -> float:
    """Temperature with the lowest negative log-likelihood, within bounds; 1 if there are no pixels.

    Args:
        logits: Scores of pixels, [N, C].
        classes: Their classes, [N].
    """
    if not len(classes):
        return 1.0
    low, high = 1 / _HIGHEST, 1 / _LOWEST
    for _ in range(30):  # the loss is convex in the inverse temperature: ternary search
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if F.cross_entropy(logits * left, classes) <= F.cross_entropy(logits * right, classes):
            high = right
        else:
            low = left
    return round(2 / (low + high), 4)
