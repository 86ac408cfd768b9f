"""Validation on image-level labels: the loss and the mean average precision."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tagseg._progress import track
from tagseg.models import Network
from tagseg.training.distributed import iterate
from tagseg.training.objective import Objective


@dataclass(frozen=True)
class Validation:
    """Results on validation images.

    Attributes:
        loss: Training loss.
        classification: Its classification part.
        average_precision: Mean over the classes that some images have and others do not.
        scores: Class probabilities, [N, C].
        labels: Image-level labels, [N, C].
    """

    loss: float
    classification: float
    average_precision: float
    scores: Tensor
    labels: Tensor


@torch.no_grad()
def validate(
    network: Network,
    batches: Iterable[tuple[Tensor, Tensor]],
    objective: Objective,
    *,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    quiet: bool = True,
) -> Validation:
    """Validate a network in evaluation mode; its mode is restored.

    Args:
        network: Network to validate.
        batches: Images, uint8 [B, 3, H, W], and the objective's targets.
        objective: Losses of the run.
        autocast: Makes the context of the network's precision.
        quiet: Do not show the progress.
    """
    was_training = network.training
    network.eval()
    total, classification, count = 0.0, 0.0, 0
    scores, labels = [], []
    with iterate(batches) as items:
        for images, targets in track(items, "Validating, batch", len(batches), quiet=quiet):  # type: ignore[arg-type]
            images = images.to(network.mean.device).float() / 255
            with autocast():
                losses = objective.losses(network, images, targets, normalize=network.normalize)
            total += losses.total.item() * len(images)
            classification += losses.classification.item() * len(images)
            count += len(images)
            scores.append(losses.scores.float().sigmoid().cpu())
            labels.append(objective.labels(targets))
    network.train(was_training)
    all_scores, all_labels = torch.cat(scores), torch.cat(labels)
    precision = mean_average_precision(all_scores, all_labels)
    return Validation(total / count, classification / count, precision, all_scores, all_labels)


def mean_average_precision(scores: Tensor, labels: Tensor) -> float:
    """Mean over classes of the area under the precision-recall curve; NaN if no class has images with and without.

    Args:
        scores: Class scores, [N, C].
        labels: Image-level labels, 0 or 1, [N, C].
    """
    values = []
    for class_scores, class_labels in zip(scores.T, labels.T, strict=True):
        if 0 < class_labels.sum() < len(class_labels):
            ranked = class_labels[class_scores.argsort(descending=True, stable=True)]
            precision = ranked.cumsum(0) / torch.arange(1, len(ranked) + 1)
            values.append(float((precision * ranked).sum() / ranked.sum()))
    return float(np.mean(values)) if values else float("nan")
