"""Counts of which class was taken for which, pixel by pixel, and the measures that follow from them."""

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from tagseg.data.masks import IGNORE_LABEL

Floats = NDArray[np.float64]


class ConfusionMatrix:
    """Pixels by their true class (rows) and their predicted class (columns); class 0 is the background.

    A measure that would divide by 0 is NaN: the IoU of a class in neither the ground truth nor the prediction, the
    precision of one that is never predicted, the recall of one that never occurs. Means leave NaN out.

    Args:
        classes: how many, with the background.
        counts: what was counted before, [classes, classes].
    """

    def __init__(self, classes: int, counts: NDArray[np.int64] | None = None) -> None:
        if not 1 <= classes <= IGNORE_LABEL:
            raise ValueError(f"masks of 8 bits tell 1 to {IGNORE_LABEL} classes with the background, got {classes}")
        self.classes = classes
        self.counts = np.zeros((classes, classes), dtype=np.int64) if counts is None else counts.astype(np.int64)
        if self.counts.shape != (classes, classes):
            raise ValueError(f"counts must be [{classes}, {classes}], got {list(self.counts.shape)}")

    def update(self, prediction: NDArray[np.integer], ground_truth: NDArray[np.uint8]) -> None:
        """Count one image.

        Args:
            prediction: a class for each pixel, [H, W].
            ground truth: the true ones; pixels of value 255 are not judged.
        """
        if prediction.shape != ground_truth.shape:
            raise ValueError(
                f"prediction and ground truth must be of one size, got {list(prediction.shape)} and "
                f"{list(ground_truth.shape)}"
            )
        if prediction.size and not 0 <= int(prediction.min()) <= int(prediction.max()) < self.classes:
            raise ValueError(
                f"prediction must have the values 0 to {self.classes - 1}, got {prediction.min()} to {prediction.max()}"
            )
        # Ignored pixels are counted in a row of their own, which is then left out: faster than to filter them.
        # By torch and not by numpy, which would keep all other threads waiting.
        pairs = torch.from_numpy(ground_truth.astype(np.int32) * self.classes + prediction.astype(np.int32)).flatten()
        table = torch.bincount(pairs, minlength=256 * self.classes).view(256, self.classes).numpy()
        if unknown := [
            int(value) for value in np.flatnonzero(table[self.classes : IGNORE_LABEL].any(1)) + self.classes
        ]:
            raise ValueError(
                f"ground truth has the value {unknown[0]}, but there are {self.classes} classes with the background; "
                f"only {IGNORE_LABEL} is ignored"
            )
        self.counts += table[: self.classes]

    def __add__(self, other: Self) -> "ConfusionMatrix":
        if self.classes != other.classes:
            raise ValueError(f"matrices of {self.classes} and {other.classes} classes cannot be added")
        return ConfusionMatrix(self.classes, self.counts + other.counts)

    @property
    def iou(self) -> Floats:
        """Intersection over union of each class, background first."""
        return self._right / _or_nan(self.counts.sum(0) + self.counts.sum(1) - self._right)

    @property
    def precision(self) -> Floats:
        """Of the pixels predicted as a class, the share that is."""
        return self._right / _or_nan(self.counts.sum(0))

    @property
    def recall(self) -> Floats:
        """Of a class's pixels, the share that was found."""
        return self._right / _or_nan(self.counts.sum(1))

    @property
    def _right(self) -> Floats:
        return self.counts.diagonal().astype(np.float64)


def mean(values: Floats) -> float:
    """The mean of all that is not NaN; NaN if nothing is left."""
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")


def _or_nan(counts: NDArray[np.float64]) -> Floats:
    return np.where(counts > 0, counts, np.nan)
