"""The one dataset type: images and their tags, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tagseg.errors import DataError

Pixels = NDArray[np.uint8]  # [H, W, 3]


@dataclass(frozen=True)
class Facts:
    """What `check` asks of an image: its size as shown, how it is stored, and a digest equal only for equal files."""

    width: int
    height: int
    mode: str
    digest: bytes


class Images(Protocol):
    """Where pixels come from: files on disk, members of zips, or a generator."""

    def read(self, index: int) -> Pixels:
        """The image as RGB, [H, W, 3]."""

    def facts(self, index: int) -> Facts:
        """The image's facts, after decoding it in full."""

    def digest(self, index: int) -> bytes:
        """The image's digest alone, without decoding it."""

    def select(self, indices: Sequence[int]) -> Self:
        """The same source with only these images."""


class ImageDataset(Dataset[tuple[Tensor, Tensor]]):
    """Images with image-level tags: `dataset[i]` is (image uint8 [3, H, W], tags float [C]).

    Masks have no place here: those for evaluation are a `MaskDataset`, opened apart by `open_masks`.

    Attributes:
        classes: the name of each tag, in the order of the columns of `tags`.
        names: one ID for each image, unique in the dataset.
        tags: 1 where an image has a tag and 0 elsewhere, [N, C]; known without decoding an image.
        images: where the pixels come from.
    """

    def __init__(self, classes: Sequence[str], names: Sequence[str], tags: Tensor, images: Images) -> None:
        if tuple(tags.shape) != (len(names), len(classes)):
            raise DataError(f"tags must be [images, classes] = [{len(names)}, {len(classes)}], got {list(tags.shape)}")
        self.classes = tuple(classes)
        self.names = tuple(names)
        self.tags = tags.float()
        self.images = images

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        index = range(len(self))[index]  # counts from the end if negative, IndexError past it
        pixels = torch.from_numpy(self.images.read(index))
        return pixels.permute(2, 0, 1).contiguous(), self.tags[index]

    def subset(self, indices: Sequence[int]) -> "ImageDataset":
        """The images at these positions, in this order, as a dataset of its own."""
        positions = [range(len(self))[int(i)] for i in indices]
        names = [self.names[i] for i in positions]
        return ImageDataset(self.classes, names, self.tags[positions], self.images.select(positions))
