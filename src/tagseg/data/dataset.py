"""The dataset type that every reader produces, images with image-level labels, and its split for validation."""

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from tagseg.data.images import ImageInfo, Pixels
from tagseg.errors import DataError


class ImageReader(Protocol):
    """Source of a dataset's pixels: files on disk, members of zips, or a generator."""

    def read(self, index: int) -> Pixels:
        """Read an image as RGB, [H, W, 3]."""

    def info(self, index: int) -> ImageInfo:
        """Decode an image and return facts about it."""

    def select(self, indices: Sequence[int]) -> Self:
        """Reader of only these images."""


class ImageDataset(Dataset[tuple[Tensor, Tensor]]):
    """Images with image-level labels: `dataset[i]` is (image uint8 [3, H, W], labels float [C]).

    The dataset has no access to masks. Those for evaluation are a `MaskDataset`, see `DataSource.open_masks`.

    Args:
        classes: Class names, in the order of the columns of `labels`.
        image_ids: One ID per image, unique in the dataset.
        labels: 1 where an image shows a class and 0 elsewhere, [N, C].
        images: Reader of the pixels.
    """

    def __init__(self, classes: Sequence[str], image_ids: Sequence[str], labels: Tensor, images: ImageReader) -> None:
        if tuple(labels.shape) != (len(image_ids), len(classes)):
            raise DataError(
                f"labels must be [images, classes] = [{len(image_ids)}, {len(classes)}], got {list(labels.shape)}"
            )
        self.classes = tuple(classes)
        self.image_ids = tuple(image_ids)
        self.labels = labels.float()
        self.images = images

    def __len__(self) -> int:
        return len(self.image_ids)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        index = range(len(self))[index]  # counts from the end if negative, raises IndexError past the end
        pixels = torch.from_numpy(self.images.read(index))
        return pixels.permute(2, 0, 1).contiguous(), self.labels[index]

    def subset(self, indices: Sequence[int]) -> "ImageDataset":
        """Dataset of the images at these positions, in this order."""
        positions = [range(len(self))[int(i)] for i in indices]
        image_ids = [self.image_ids[i] for i in positions]
        return ImageDataset(self.classes, image_ids, self.labels[positions], self.images.select(positions))


def hold_out(dataset: ImageDataset, fraction: float, *, seed: int = 0) -> tuple[ImageDataset, ImageDataset]:
    """Split a dataset into training and validation images.

    The validation images hold about this fraction of every class and of the images without labels, and each of these
    keeps at least one training image.

    Args:
        dataset: Dataset to split.
        fraction: Fraction of the images to hold out.
        seed: Random seed.

    Returns:
        The training images and the validation images, each in the dataset's order.
    """
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()
    all_labels = _with_negatives(dataset)
    target_counts = (all_labels.sum(0) * fraction).floor()
    training_counts = all_labels.sum(0)
    held_out_counts = torch.zeros(len(training_counts))
    held_out: set[int] = set()
    # Rare classes go first, because few images can fill their share.
    for column in training_counts.argsort(stable=True).tolist():
        for index in order:
            labels = all_labels[index]
            if held_out_counts[column] >= target_counts[column]:
                break
            if labels[column] and index not in held_out and (training_counts[labels.bool()] > 1).all():
                held_out.add(index)
                held_out_counts += labels
                training_counts -= labels
    # The classes' shares may be filled by fewer images than the fraction.
    for index in order:
        if len(held_out) >= max(1, round(fraction * len(dataset))):
            break
        if index not in held_out and (training_counts[all_labels[index].bool()] > 1).all():
            held_out.add(index)
            training_counts -= all_labels[index]
    training = [index for index in range(len(dataset)) if index not in held_out]
    return dataset.subset(training), dataset.subset(sorted(held_out))


def _with_negatives(dataset: ImageDataset) -> Tensor:
    """Labels, with images that have none as one more class, [N, C + 1]."""
    return torch.cat([dataset.labels, (dataset.labels.sum(1, keepdim=True) == 0).float()], 1)
