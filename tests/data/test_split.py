"""Splitting off validation images."""

import torch

from tagseg.data import ImageDataset, shapes
from tagseg.data.split import hold_out


def labeled(*rows: list[float]) -> ImageDataset:
    images = shapes(len(rows))
    classes = [f"class {k}" for k in range(len(rows[0]))]
    return ImageDataset(classes, images.image_ids, torch.tensor(rows), images.images)


def test_split_is_a_partition_with_a_share_of_every_class() -> None:
    dataset = shapes(100)
    training, validation = hold_out(dataset, 0.2)
    assert sorted(training.image_ids + validation.image_ids) == sorted(dataset.image_ids)
    assert (validation.labels.sum(0) >= (dataset.labels.sum(0) * 0.2).floor()).all()
    assert len(validation) >= 20


def test_images_without_labels_are_held_out_like_a_class() -> None:
    training, validation = hold_out(labeled(*[[1.0]] * 40, *[[0.0]] * 10), 0.1)
    assert [int((part.labels == 0).sum()) for part in (training, validation)] == [9, 1]


def test_split_depends_only_on_the_seed() -> None:
    first, again, other = (hold_out(shapes(60), 0.1, seed=seed)[1].image_ids for seed in (3, 3, 4))
    assert first == again != other


def test_every_class_keeps_a_training_image() -> None:
    training, validation = hold_out(labeled([1, 0], [1, 0], [0, 1]), 0.9)
    assert (training.labels.sum(0) >= 1).all()
    assert len(validation) == 1


def test_no_image_can_be_held_out_if_each_is_the_only_one_of_a_class() -> None:
    assert len(hold_out(labeled([1, 0], [0, 1]), 0.5)[1]) == 0
