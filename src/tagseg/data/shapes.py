"""`shapes`: a generated dataset with exact masks, for demos and tests; nothing is downloaded or stored.

Seed, split and index determine an image, so every machine generates the same dataset.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Self

import numpy as np

from tagseg.data._shapes_render import SHAPE_CLASSES, Shape, draw_scene, paint, scene_mask
from tagseg.data.images import ImageInfo, Pixels, thumbnail
from tagseg.data.masks import Mask, MaskDataset
from tagseg.errors import DataError, unknown_name

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is to be reported before that
    from tagseg.data.dataset import ImageDataset

_SPLITS = {"train": 0, "val": 1, "test": 2}
_MIN_SIDE = 32


def shapes(count: int = 500, *, size: int = 96, split: str = "train", seed: int = 0) -> "ImageDataset":
    """Generate images of discs, squares, triangles, stars, rings and crosses with image-level labels.

    Args:
        count: Number of images; a longer dataset begins with the images of a shorter one.
        size: Width and height of an image; the scene does not depend on it.
        split: train, val or test; they share no image.
        seed: Random seed.
    """
    import torch

    from tagseg.data.dataset import ImageDataset

    _check_arguments(count, size, split)
    labels = torch.zeros(count, len(SHAPE_CLASSES))
    for index in range(count):
        labels[index, [shape.class_index for shape in _scene(seed, split, index)]] = 1
    image_ids = [_image_id(split, index) for index in range(count)]
    return ImageDataset(SHAPE_CLASSES, image_ids, labels, _ShapesReader(seed, split, size, tuple(range(count))))


def shapes_masks(count: int = 500, *, size: int = 96, split: str = "train", seed: int = 0) -> MaskDataset:
    """Generate the masks of `shapes` called with the same arguments."""
    _check_arguments(count, size, split)
    readers = {_image_id(split, index): partial(_mask, seed, split, index, size) for index in range(count)}
    return MaskDataset(SHAPE_CLASSES, readers)


@dataclass(frozen=True)
class _ShapesReader:
    """Images that are painted on access: an `ImageReader`."""

    seed: int
    split: str
    size: int
    indices: tuple[int, ...]

    def read(self, index: int) -> Pixels:
        return _image(self.seed, self.split, self.size, self.indices[index]).copy()

    def info(self, index: int) -> ImageInfo:
        pixels = self.read(index)
        digest = hashlib.blake2b(pixels.tobytes()).digest()
        return ImageInfo(self.size, self.size, "RGB", digest, thumbnail(pixels))

    def select(self, indices: Sequence[int]) -> Self:
        return replace(self, indices=tuple(self.indices[i] for i in indices))


def _check_arguments(count: int, size: int, split: str) -> None:
    if split not in _SPLITS:
        raise DataError(f"shapes: {unknown_name('split', split, _SPLITS)}")
    if count < 1 or size < _MIN_SIDE:
        raise DataError(f"shapes: needs count >= 1 and size >= {_MIN_SIDE}, got count {count} and size {size}")


def _image_id(split: str, index: int) -> str:
    return f"{split}-{index:05d}"


def _scene(seed: int, split: str, index: int) -> list[Shape]:
    return draw_scene(_generator(seed, split, index, stream=0))


@lru_cache(maxsize=4096)  # Painting an image takes longer than a training step of a small network.
def _image(seed: int, split: str, size: int, index: int) -> Pixels:
    return paint(_scene(seed, split, index), size, _generator(seed, split, index, stream=1))


def _mask(seed: int, split: str, index: int, size: int) -> Mask:
    return scene_mask(_scene(seed, split, index), size)


def _generator(seed: int, split: str, index: int, *, stream: int) -> np.random.Generator:
    # Layout and texture use separate random streams, so that a change of texture does not change a mask.
    return np.random.default_rng(np.random.SeedSequence([seed, _SPLITS[split], index, stream]))
