"""Confidence: how probable the class of each pixel is, and how uncertain the mask of a whole image."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_Mask = NDArray[np.integer[Any]]  # [H, W]
_BAND_PIXELS = 2**22


def class_shares(merged: Tensor) -> Tensor:
    """Probability of the background and each class in a pixel: its share of the merged masks, [R, K, h, w].

    Merged masks sum to 1 only after a CRF: the background is discounted, and CAM's masks are no probabilities.
    """
    return merged / merged.sum(1, keepdim=True).clamp_min(1e-12)


@dataclass(frozen=True, eq=False)
class Confidence:
    """Confidence of a mask.

    Attributes:
        pixels: 255 x the probability of each pixel's class, [H, W].
        areas: Sum over the pixels of each probability: of the background, then of each class that was allowed.
    """

    pixels: NDArray[np.uint8]
    areas: tuple[float, ...]


def mean_confidence(mask: _Mask, pixels: NDArray[np.uint8], value: int) -> float:
    """Mean probability of the pixels of a class; 0 if it has none."""
    area = total = 0
    for rows in bands(mask):
        levels = pixels[rows][mask[rows] == value]
        area, total = area + levels.size, total + int(levels.sum(dtype=np.int64))
    return total / area / 255 if area else 0.0


def bands(mask: _Mask) -> Iterator[slice]:
    """Rows of a mask, some at a time: what is computed from all pixels of a large mask at once fills the memory."""
    step = max(1, _BAND_PIXELS // mask.shape[1])
    return (slice(top, top + step) for top in range(0, mask.shape[0], step))


def class_presence(scores: Sequence[float], thresholds: Sequence[float]) -> NDArray[np.float64]:
    """Probability that an image has each class, [C]: 1/2 at its threshold, by the odds of its score."""
    score, threshold = (np.clip(values, 1e-6, 1 - 1e-6) for values in (scores, thresholds))
    for_it, against_it = score * (1 - threshold), threshold * (1 - score)
    return np.asarray(for_it / (for_it + against_it))


def uncertainty(
    mask: _Mask, confidence: Confidence, presence: NDArray[np.float64], class_indices: Sequence[int]
) -> float:
    """1 - expected IoU of a mask, from 0 to 1.

    The expected IoU of a class is its expected intersection with the ground truth over the expected union, by the
    probabilities of the pixels; 0 for a class that was not allowed. The mean over the classes weights each with the
    probability that the image has it, and the background with 1. So a mask is uncertain where classes compete for
    pixels, where a class may be missing, and where one may be wrong.

    Args:
        mask: 0 for the background, k + 1 for class k, [H, W].
        confidence: Confidence of the mask.
        presence: Probability that the image has each class, [C].
        class_indices: Classes that were allowed, in the order of the confidence's areas.
    """
    others = sum(confidence.areas[1:])
    areas = {0: mask.size - others} | {k + 1: area for k, area in zip(class_indices, confidence.areas[1:], strict=True)}
    total, weights = 0.0, 1 + float(presence.sum())
    for value, expected_area in areas.items():
        area = sum(int((mask[rows] == value).sum()) for rows in bands(mask))
        intersection = area * mean_confidence(mask, confidence.pixels, value)
        weight = 1.0 if value == 0 else float(presence[value - 1])
        total += weight * intersection / max(area + expected_area - intersection, 1e-12)
    return min(1.0, max(0.0, 1 - total / weights))


def nearest_threshold(
    scores: Mapping[str, float], thresholds: Sequence[float], presence: NDArray[np.float64]
) -> dict[str, str | float]:
    """The class whose presence is least certain, with its score and threshold."""
    index = int(np.abs(presence - 0.5).argmin())
    name = list(scores)[index]
    return {"name": name, "score": scores[name], "threshold": thresholds[index]}
