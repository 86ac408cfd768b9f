"""Hold images out of a dataset, fairly over its classes."""

import torch

from tagseg.data.dataset import ImageDataset


def can_hold_out(dataset: ImageDataset) -> bool:
    """Whether any image can go without a class losing its last one."""
    return bool(((dataset.tags == 0) | (dataset.tags.sum(0) > 1)).all(1).any())


def hold_out(dataset: ImageDataset, share: float, *, seed: int = 0) -> tuple[ImageDataset, ImageDataset]:
    """Split a dataset in two; the second gets a share of every class, and the first keeps some of each.

    Args:
        dataset: what to split.
        share: the second part's share of the images.
        seed: of the draw.
    """
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()
    wanted = (dataset.tags.sum(0) * share).floor()
    left = dataset.tags.sum(0).clone()
    held: set[int] = set()
    count = torch.zeros(len(dataset.classes))
    # Rare classes first: an image is held out while one of its classes still lacks its share and none would run dry.
    for column in dataset.tags.sum(0).argsort().tolist():
        for index in order:
            tags = dataset.tags[index]
            if count[column] >= wanted[column]:
                break
            if tags[column] and index not in held and (left[tags.bool()] > 1).all():
                held.add(index)
                count += tags
                left -= tags
    for index in order:  # images without any class, or if the shares were met by fewer images
        if len(held) >= max(1, round(share * len(dataset))):
            break
        if index not in held and (left[dataset.tags[index].bool()] > 1).all():
            held.add(index)
            left -= dataset.tags[index]
    return dataset.subset([i for i in range(len(dataset)) if i not in held]), dataset.subset(sorted(held))
