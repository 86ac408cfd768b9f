"""Metrics: the confusion matrix of pixels, and IoU, precision and recall per class."""

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from tagseg.data.masks import IGNORE_LABEL

Floats = NDArray[np.float64]


class ConfusionMatrix:
    """Pixels by their true class (rows) and their predicted class (columns); class 0 is the background.

    A metric that would divide by 0 is NaN: the IoU of a class in neither the ground truth nor the prediction, the
    precision of a class that is never predicted, the recall of a class that never occurs. Means ignore NaN.

    Args:
        num_classes: Number of classes with the background.
        counts: Initial counts, [C, C].
    """

    def __init__(self, num_classes: int, counts: NDArray[np.int64] | None = None) -> None:
        if not 1 <= num_classes <= IGNORE_LABEL:
            raise ValueError(f"8-bit masks have 1 to {IGNORE_LABEL} classes with the background, got {num_classes}")
        self.num_classes = num_classes
        self.counts = (
            np.zeros((num_classes, num_classes), dtype=np.int64) if counts is None else counts.astype(np.int64)
        )
        if self.counts.shape != (num_classes, num_classes):
            raise ValueError(f"counts must be [{num_classes}, {num_classes}], got {list(self.counts.shape)}")

    def update(self, prediction: NDArray[np.integer], ground_truth: NDArray[np.uint8]) -> None:
        """Count the pixels of one image.

        Args:
            prediction: Class of each pixel, [H, W].
            ground_truth: True classes, [H, W]; pixels of value 255 are ignored.
        """
        if prediction.shape != ground_truth.shape:
            raise ValueError(
                f"prediction and ground truth must be of one size, got {list(prediction.shape)} and "
                f"{list(ground_truth.shape)}"
            )
        if prediction.size and not 0 <= int(prediction.min()) <= int(prediction.max()) < self.num_classes:
            raise ValueError(
                f"prediction must have the values 0 to {self.num_classes - 1}, got {prediction.min()} to "
                f"{prediction.max()}"
            )
        # Ignored pixels are counted in a row that is then dropped, which is faster than filtering them. torch releases
        # the GIL here, numpy does not.
        pairs = torch.from_numpy(
            ground_truth.astype(np.int32) * self.num_classes + prediction.astype(np.int32)
        ).flatten()
        table = torch.bincount(pairs, minlength=256 * self.num_classes).view(256, self.num_classes).numpy()
        if unknown := [
            int(value) for value in np.flatnonzero(table[self.num_classes : IGNORE_LABEL].any(1)) + self.num_classes
        ]:
            raise ValueError(
                f"ground truth has the value {unknown[0]}, but there are {self.num_classes} classes with the "
                f"background; only {IGNORE_LABEL} is ignored"
            )
        self.counts += table[: self.num_classes]

    def __add__(self, other: Self) -> "ConfusionMatrix":
        if self.num_classes != other.num_classes:
            raise ValueError(f"matrices of {self.num_classes} and {other.num_classes} classes cannot be added")
        return ConfusionMatrix(self.num_classes, self.counts + other.counts)

    @property
    def iou(self) -> Floats:
        """Intersection over union of each class, background first."""
        return self._true_positives / _or_nan(self.counts.sum(0) + self.counts.sum(1) - self._true_positives)

    @property
    def num_counted(self) -> int:
        """Number of classes that count towards the mean IoU."""
        return int((~np.isnan(self.iou)).sum())

    @property
    def precision(self) -> Floats:
        """True positives over predicted pixels of each class."""
        return self._true_positives / _or_nan(self.counts.sum(0))

    @property
    def recall(self) -> Floats:
        """True positives over true pixels of each class."""
        return self._true_positives / _or_nan(self.counts.sum(1))

    @property
    def _true_positives(self) -> Floats:
        return self.counts.diagonal().astype(np.float64)


def mean(values: Floats) -> float:
    """Mean of the values that are not NaN; NaN if there are none."""
    valid = values[~np.isnan(values)]
    return float(valid.mean()) if len(valid) else float("nan")


def _or_nan(counts: NDArray[np.float64]) -> Floats:
    return np.where(counts > 0, counts, np.nan)
