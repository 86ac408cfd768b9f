"""Tags that the model contradicts, which are likely label errors, ranked by their loss beyond what is usual."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tagseg.report.examination import Examination
from tagseg.report.gallery import Cell, thumbnail, to_cell

MAX_IMAGES = 30
_SIDE = 200
_SMALLEST = 1e-6  # scores are no closer to 0 and 1: the loss stays finite


class Doubt(NamedTuple):
    """A tag that the model contradicts.

    Attributes:
        image: Position of the image.
        class_index: Position of the class.
        is_tagged: Whether the image has the tag; otherwise the model finds a class that is not tagged.
        score: Score of the class.
        excess: Cross-entropy of the tag beyond its mean over the images that have, or lack, the same tag: a class that
            the model has hardly learned does not fill the list.
    """

    image: int
    class_index: int
    is_tagged: bool
    score: float
    excess: float


@dataclass(frozen=True)
class DoubtfulImage:
    """An image with tags to check.

    Attributes:
        image_id: ID of the image.
        split: `training` or `validation`.
        cell: Thumbnail.
        tags: Tags of the image.
        doubts: For each doubtful tag whether it is given, its class and the score, in descending order.
    """

    image_id: str
    split: str
    cell: Cell
    tags: tuple[str, ...]
    doubts: tuple[tuple[bool, str, float], ...]


@dataclass(frozen=True)
class DoubtfulTags:
    """The tags to check.

    Attributes:
        images: Images that the model contradicts most, in descending order.
        num_images: Number of images with a tag that the model contradicts.
        num_tags: Number of these tags.
    """

    images: list[DoubtfulImage]
    num_images: int
    num_tags: int


def rank_doubts(
    scores: NDArray[np.float64], labels: NDArray[np.bool_], thresholds: Sequence[float]
) -> list[list[Doubt]]:
    """Find the tags that the model contradicts: those on the other side of the threshold and of one half.

    Args:
        scores: Class scores after the sigmoid, [N, C].
        labels: Whether an image has a tag, [N, C].
        thresholds: Score from which on the model predicts a class, [C].

    Returns:
        The doubts of each image that has some; images and their doubts by descending excess of the loss.
    """
    limits = np.asarray(thresholds)
    is_missed = labels & (scores < np.minimum(limits, 0.5))
    is_extra = ~labels & (scores >= np.maximum(limits, 0.5))
    losses = -np.log(np.where(labels, scores, 1 - scores).clip(_SMALLEST))
    excess = losses - np.where(labels, _mean(losses, labels), _mean(losses, ~labels))
    positions = np.argwhere(is_missed | is_extra)
    by_image: dict[int, list[Doubt]] = {}
    for image, k in positions[np.argsort(-excess[tuple(positions.T)], kind="stable")].tolist():
        doubt = Doubt(image, k, bool(labels[image, k]), float(scores[image, k]), float(excess[image, k]))
        by_image.setdefault(image, []).append(doubt)
    return list(by_image.values())


def find_doubtful_tags(examinations: Sequence[Examination], thresholds: Sequence[float]) -> DoubtfulTags:
    """Rank the tags of all examined images, and make thumbnails of the images that come first.

    Args:
        examinations: Results for the images of each split.
        thresholds: Score from which on the model predicts a class, [C].
    """
    if not examinations:
        return DoubtfulTags([], 0, 0)
    places = [(examination, index) for examination in examinations for index in range(len(examination.images))]
    scores = np.concatenate([examination.scores for examination in examinations])
    labels = np.concatenate([examination.labels for examination in examinations])
    ranked = rank_doubts(scores, labels, thresholds)
    return DoubtfulTags(
        images=[_show(*places[doubts[0].image], doubts) for doubts in ranked[:MAX_IMAGES]],
        num_images=len(ranked),
        num_tags=sum(map(len, ranked)),
    )


def _mean(losses: NDArray[np.float64], is_counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean of each class over the images that count, [C]."""
    means: NDArray[np.float64] = (losses * is_counted).sum(0) / is_counted.sum(0).clip(1)
    return means


def _show(examination: Examination, index: int, doubts: Sequence[Doubt]) -> DoubtfulImage:
    images = examination.images
    tags = tuple(images.classes[k] for k in np.flatnonzero(examination.labels[index]))
    image_id = images.image_ids[index]
    return DoubtfulImage(
        image_id=image_id,
        split=examination.split,
        cell=to_cell(thumbnail(images.images.read(index), _SIDE), f"{image_id}, tagged {', '.join(tags) or 'nothing'}"),
        tags=tags,
        doubts=tuple((doubt.is_tagged, images.classes[doubt.class_index], doubt.score) for doubt in doubts),
    )
