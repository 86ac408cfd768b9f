"""The exact masks of `shapes`, for evaluation."""

from functools import partial

from tagseg.data._scenes import KINDS, label_map
from tagseg.data.mask_dataset import Mask, MaskDataset
from tagseg.data.shapes import check_arguments, image_name, scene_of


def shapes_masks(count: int = 500, *, size: int = 96, split: str = "train", seed: int = 0) -> MaskDataset:
    """The masks of `shapes` called with the same arguments."""
    check_arguments(count, size, split)
    return MaskDataset(KINDS, {image_name(split, i): partial(_mask, seed, split, i, size) for i in range(count)})


def _mask(seed: int, split: str, index: int, size: int) -> Mask:
    return label_map(scene_of(seed, split, index), size)
