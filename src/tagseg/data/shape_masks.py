"""The exact masks of `shapes`, for evaluation."""

from functools import partial

from tagseg.data._scenes import KINDS, label_map
from tagseg.data.shapes import check_arguments, picture_name, scene_of
from tagseg.data.truth import Mask, PixelTruth


def shapes_truth(count: int = 500, *, size: int = 96, split: str = "train", seed: int = 0) -> PixelTruth:
    """The masks of `shapes` called with the same arguments."""
    check_arguments(count, size, split)
    return PixelTruth(KINDS, {picture_name(split, i): partial(_mask, seed, split, i, size) for i in range(count)})


def _mask(seed: int, split: str, index: int, size: int) -> Mask:
    return label_map(scene_of(seed, split, index), size)
