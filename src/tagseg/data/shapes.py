"""`shapes`: a dataset that needs no download and whose masks are known exactly, to try, teach and test with.

Seed, split and index alone decide an image, so nothing is stored and every machine draws the same ones.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch

from tagseg.data._painting import paint
from tagseg.data._scenes import KINDS, Thing, draw_scene
from tagseg.data.dataset import Facts, ImageDataset, Pixels
from tagseg.errors import DataError, unknown_name

_SPLITS = {"train": 0, "val": 1, "test": 2}
_SMALLEST_SIDE = 32


def shapes(count: int = 500, *, size: int = 96, split: str = "train", seed: int = 0) -> ImageDataset:
    """Generated images of discs, squares, triangles, stars, rings and crosses with their tags.

    Args:
        count: number of images; a longer dataset begins with the images of a shorter one.
        size: width and height of an image; the scene does not depend on it.
        split: train, val or test, which share no image.
        seed: another seed gives other images.
    """
    check_arguments(count, size, split)
    tags = torch.zeros(count, len(KINDS))
    for index in range(count):
        tags[index, [thing.kind for thing in scene_of(seed, split, index)]] = 1
    names = [image_name(split, index) for index in range(count)]
    return ImageDataset(KINDS, names, tags, _Rendered(seed, split, size, tuple(range(count))))


@dataclass(frozen=True)
class _Rendered:
    """Images painted when they are first asked for."""

    seed: int
    split: str
    size: int
    indices: tuple[int, ...]

    def read(self, index: int) -> Pixels:
        return _painted(self.seed, self.split, self.size, self.indices[index]).copy()

    def facts(self, index: int) -> Facts:
        pixels = self.read(index)
        return Facts(self.size, self.size, "RGB", hashlib.blake2b(pixels.tobytes()).digest())

    def digest(self, index: int) -> bytes:
        return self.facts(index).digest

    def select(self, indices: Sequence[int]) -> Self:
        return replace(self, indices=tuple(self.indices[i] for i in indices))


def check_arguments(count: int, size: int, split: str) -> None:
    """Refuse what cannot be drawn."""
    if split not in _SPLITS:
        raise DataError(f"shapes: {unknown_name('split', split, _SPLITS)}")
    if count < 1 or size < _SMALLEST_SIDE:
        raise DataError(f"shapes: needs count >= 1 and size >= {_SMALLEST_SIDE}, got count {count} and size {size}")


def image_name(split: str, index: int) -> str:
    """The ID of a generated image."""
    return f"{split}-{index:05d}"


def scene_of(seed: int, split: str, index: int) -> list[Thing]:
    """What lies where in a generated image."""
    return draw_scene(_generator(seed, split, index, purpose=0))


def _generator(seed: int, split: str, index: int, *, purpose: int) -> np.random.Generator:
    # Layout and paint draw from streams of their own: a change of texture never moves a mask.
    return np.random.default_rng(np.random.SeedSequence([seed, _SPLITS[split], index, purpose]))


@lru_cache(maxsize=4096)  # painting takes longer than an epoch of a small network has for an image
def _painted(seed: int, split: str, size: int, index: int) -> Pixels:
    return paint(scene_of(seed, split, index), size, _generator(seed, split, index, purpose=1))
