"""Examination of a model on the images of its run: class scores, and how much of each image the masks cover."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tagseg._progress import track
from tagseg.data.dataset import ImageDataset
from tagseg.evaluation.evaluate import labels_rule
from tagseg.predict.engine import TRUE_TAGS
from tagseg.predict.pipeline import Sample, read_samples, run_pipeline
from tagseg.predict.predictor import Predictor
from tagseg.report.stages import evenly_spaced


@dataclass(frozen=True)
class Examination:
    """Results of a model for the images of one split.

    Attributes:
        split: `training` or `validation`.
        images: Examined images.
        total: Number of images of the split.
        scores: Class scores, [N, C].
        shares: Share of the image that the mask of each class covers, given the image's tags, [N, C].
        unreadable: Why each image that could not be read was left out.
    """

    split: str
    images: ImageDataset
    total: int
    scores: NDArray[np.float64]
    shares: NDArray[np.float64]
    unreadable: tuple[str, ...]

    @property
    def labels(self) -> NDArray[np.bool_]:
        """Which images have which tag, [N, C]."""
        return self.images.labels.numpy() > 0.5


def examine(
    predictor: Predictor, images: ImageDataset, split: str, *, count: int | None = None, progress: bool = False
) -> Examination:
    """Run a model on images at one scale, as its thresholds were tuned; images that cannot be read are left out.

    Args:
        predictor: Model.
        images: Images of a split, with the model's classes.
        split: Name of the split.
        count: Number of images to examine, evenly spaced over their IDs; all by default.
        progress: Show a progress bar.
    """
    indices = sorted(evenly_spaced(images.image_ids, len(images) if count is None else count))
    unreadable: list[str] = []
    samples = read_samples(partial(_read, images), indices, on_error=lambda error: unreadable.append(error.problem))
    tracked = track(samples, f"Examining {split} images", len(indices), quiet=not progress)
    examined, scores, shares = [], [], []
    for sample, result in run_pipeline(predictor.engine, filter(None, tracked), predictor.settings.for_tta(False)):
        mask = result.segmentations[TRUE_TAGS].mask
        counts = np.bincount(mask.ravel(), minlength=1 + len(images.classes))
        examined.append(sample.key)
        scores.append(result.scores)
        shares.append(counts[1:] / mask.size)
    shape = (len(examined), len(images.classes))
    return Examination(
        split=split,
        images=images.subset(examined),
        total=len(images),
        scores=np.array(scores, np.float64).reshape(shape),
        shares=np.array(shares, np.float64).reshape(shape),
        unreadable=tuple(unreadable),
    )


def _read(images: ImageDataset, index: int) -> Sample[int]:
    return Sample(index, images.images.read(index), {TRUE_TAGS: labels_rule(images.labels[index])})
