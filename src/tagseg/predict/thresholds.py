"""Thresholds chosen with image tags alone, so that no mask is needed to use a model well."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagseg.data.dataset import ImageDataset
from tagseg.predict.ahead import map_ahead
from tagseg.predict.batches import in_batches
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import PAPER_THRESHOLD, InferenceSettings
from tagseg.predict.stream import Decoded


def tune_on_tags(
    predictor: Predictor, data: ImageDataset, *, tta: bool = False, batch_size: int = 8
) -> InferenceSettings:
    """The predictor's settings with thresholds that suit tagged images which it did not learn from.

    Args:
        predictor: the model.
        data: validation images with their tags, with the model's classes in the model's order.
        quality: tune for the prediction at several scales, whose scores are higher.
        batch_size: images of one shape that go through the network together.
    """
    if data.classes != predictor.classes:
        raise ValueError(
            f"the images' tags have the classes {', '.join(data.classes)}, but the model has "
            f"{', '.join(predictor.classes)}; open them with classes= those of the model, in its order"
        )
    settings = predictor.settings if tta else predictor.settings.single_scale

    def begin(batch: list[Decoded]) -> Callable[[], list[list[float]]]:
        found = predictor.engine.begin([item.pixels for item in batch], [lambda _: {}] * len(batch), settings)
        return lambda: [scores for scores, _ in found()]

    def read(index: int) -> Decoded:
        return Decoded(data.image_ids[index], data.images.read(index))

    images = map_ahead(read, range(len(data)), size=lambda image: image.pixels.nbytes)
    scores = list(in_batches(images, begin, batch_size=batch_size, in_flight=predictor.engine.in_flight))
    return replace(predictor.settings, thresholds=tune_thresholds(scores, data.labels.numpy()), thresholds_from="tags")


def tune_thresholds(scores: ArrayLike, tags: ArrayLike) -> tuple[float, ...]:
    """For each class, the threshold with the best F1 score on tagged validation images.

    A threshold lies in the middle between two scores. Of several that are as good, the lowest is taken, which keeps the
    most images that have the tag. A class that all images have, or none, keeps the paper's threshold.

    Args:
        scores: the classes' scores after the sigmoid, [N, C].
        tags: 1 where the image has the tag and 0 elsewhere, [N, C].
    """
    score_table, tag_table = np.asarray(scores, dtype=np.float64), np.asarray(tags) > 0.5
    if score_table.ndim != 2 or score_table.shape != tag_table.shape:
        raise ValueError(
            f"scores and tags must both be [images, classes], got {list(score_table.shape)} and {list(tag_table.shape)}"
        )
    if not ((score_table >= 0) & (score_table <= 1)).all():
        raise ValueError("scores must be from 0 to 1 and not NaN; apply the sigmoid first")
    return tuple(_best_threshold(score_table[:, k], tag_table[:, k]) for k in range(score_table.shape[1]))


def _best_threshold(scores: NDArray[np.float64], tags: NDArray[np.bool_]) -> float:
    positives = int(tags.sum())
    if positives in (0, len(tags)):
        return PAPER_THRESHOLD
    order = np.argsort(-scores, kind="stable")
    ranked = np.append(scores[order], 0.0)
    kept = np.arange(1, len(scores) + 1)
    f1 = 2 * np.cumsum(tags[order]) / (kept + positives)
    f1[:-1][ranked[:-2] == ranked[1:-1]] = -1  # no threshold separates equal scores
    best = int(np.flatnonzero(f1 == f1.max())[-1])
    return float(ranked[best] + ranked[best + 1]) / 2
