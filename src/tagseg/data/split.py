"""Hold validation images out of a dataset, balanced over its classes."""

import torch
from torch import Tensor

from tagseg.data.dataset import ImageDataset


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
