"""Class thresholds chosen on image tags alone, so that no mask is needed to use a model well."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagseg._progress import track
from tagseg.data.dataset import ImageDataset
from tagseg.predict.pipeline import Sample, read_ahead, run_pipeline
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import PAPER_THRESHOLD, InferenceSettings


def tune_on_tags(
    predictor: Predictor, data: ImageDataset, *, tta: bool = False, progress: bool = False
) -> InferenceSettings:
    """Tune the thresholds on tagged validation images.

    Args:
        predictor: Model.
        data: Images that it was not trained on, with the model's classes in the model's order.
        tta: Tune for test-time augmentation, whose scores are higher.
        progress: Show the progress.

    Returns:
        The predictor's settings with a threshold for each class.
    """
    predictor.check_classes("images' tags", data.classes)
    samples = read_ahead(lambda index: _sample(data, index), range(len(data)), size=lambda sample: sample.image.nbytes)
    settings = predictor.settings.for_tta(tta)
    results = run_pipeline(predictor.engine, samples, settings)
    tracked = track(results, "Tuning thresholds, image", len(data), quiet=not progress)
    scores = [result.scores for _, result in tracked]
    return replace(predictor.settings, thresholds=tune_thresholds(scores, data.labels.numpy()), thresholds_from="tags")


def tune_thresholds(scores: ArrayLike, labels: ArrayLike) -> tuple[float, ...]:
    """Find the threshold of each class with the best F1 score.

    A threshold lies halfway between two scores. Of several that are as good the lowest is taken, which keeps the most
    images that have the label. A class that all images have, or none, keeps the paper's threshold.

    Args:
        scores: Class scores after the sigmoid, [N, C].
        labels: Image labels, 0 or 1, [N, C].
    """
    score_table, label_table = np.asarray(scores, dtype=np.float64), np.asarray(labels) > 0.5
    if score_table.ndim != 2 or score_table.shape != label_table.shape:
        raise ValueError(
            f"scores and labels must both be [images, classes], got {list(score_table.shape)} and "
            f"{list(label_table.shape)}"
        )
    if not ((score_table >= 0) & (score_table <= 1)).all():
        raise ValueError("scores must be from 0 to 1 and not NaN; apply the sigmoid first")
    return tuple(_best_threshold(score_table[:, k], label_table[:, k]) for k in range(score_table.shape[1]))


def _best_threshold(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    num_positives = int(labels.sum())
    if num_positives in (0, len(labels)):
        return PAPER_THRESHOLD
    order = np.argsort(-scores, kind="stable")
    ranked_scores = np.append(scores[order], 0.0)
    num_predicted = np.arange(1, len(scores) + 1)
    f1 = 2 * np.cumsum(labels[order]) / (num_predicted + num_positives)
    f1[:-1][ranked_scores[:-2] == ranked_scores[1:-1]] = -1  # no threshold separates equal scores
    best = int(np.flatnonzero(f1 == f1.max())[-1])
    return float(ranked_scores[best] + ranked_scores[best + 1]) / 2


def _sample(data: ImageDataset, index: int) -> Sample[int]:
    return Sample(index, data.images.read(index), rules={})
