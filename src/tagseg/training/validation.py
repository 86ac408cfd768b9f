"""Validation on image tags alone: the loss and the mean average precision."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tagseg.models import Network
from tagseg.training.objective import Tags, objective
from tagseg.training.recipe import PseudoLabelSettings


@dataclass(frozen=True)
class Validation:
    """What a network reaches on images that it does not learn from.

    Attributes:
        loss: the training's own loss.
        classification: the part of it that is of the tags.
        average_precision: the mean over classes that have images with and without them.
        scores: the classes' probabilities, [N, C].
        tags: the true ones, [N, C].
    """

    loss: float
    classification: float
    average_precision: float
    scores: Tensor
    tags: Tensor


@torch.no_grad()
def validate(
    network: Network,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    settings: PseudoLabelSettings | None,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Validation:
    """Measure a network on validation images, in evaluation mode; it is left in the mode that it was in."""
    was_training = network.training
    network.eval()
    total, classification, images = 0.0, 0.0, 0
    scores, tags = [], []
    for batch, wanted in batches:
        batch = batch.to(network.mean.device).float() / 255
        with autocast():
            losses = objective(
                network,
                batch,
                Tags.of(wanted, network.mean.device),
                normalise=network.normalise,
                settings=settings,
            )
        total += losses.total.item() * len(batch)
        classification += losses.classification.item() * len(batch)
        images += len(batch)
        scores.append(losses.scores.float().sigmoid().cpu())
        tags.append(wanted)
    network.train(was_training)
    all_scores, all_tags = torch.cat(scores), torch.cat(tags)
    precision = mean_average_precision(all_scores, all_tags)
    return Validation(total / images, classification / images, precision, all_scores, all_tags)


def mean_average_precision(scores: Tensor, tags: Tensor) -> float:
    """The mean over classes of the area under the precision-recall curve; NaN if no class can be judged."""
    values = []
    for column, ground_truth in zip(scores.T, tags.T, strict=True):
        if 0 < ground_truth.sum() < len(ground_truth):
            ranked = ground_truth[column.argsort(descending=True, stable=True)]
            precision = ranked.cumsum(0) / torch.arange(1, len(ranked) + 1)
            values.append(float((precision * ranked).sum() / ranked.sum()))
    return float(np.mean(values)) if values else float("nan")
