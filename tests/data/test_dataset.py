"""`ImageDataset`, which every reader returns."""

import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from tagseg.data import DataError, DataSource, ImageDataset, shapes
from tagseg.data.dataset import hold_out
from tests.data.small_datasets import BLUE, GREEN, RED, image_bytes, write_text, write_zip


@pytest.fixture
def zipped(tmp_path: Path) -> ImageDataset:
    colors = [RED, GREEN, BLUE] * 8
    write_zip(tmp_path / "t.zip", {f"{i}.png": image_bytes(color) for i, color in enumerate(colors)})
    rows = "".join(f"{i}.png,{'dog' if i % 3 else 'cat'}\n" for i in range(len(colors)))
    return DataSource(write_text(tmp_path / "t.csv", rows)).open()


def test_item_is_an_image_with_its_labels(zipped: ImageDataset) -> None:
    image, labels = zipped[1]
    assert (image.dtype, labels.dtype) == (torch.uint8, torch.float32)
    assert image.shape == (3, 8, 12)
    assert image.is_contiguous()
    assert image[:, 4, 4].tolist() == list(GREEN)
    assert labels.tolist() == [0, 1]
    assert torch.equal(zipped[-1][0], zipped[len(zipped) - 1][0])
    with pytest.raises(IndexError):
        zipped[len(zipped)]


def test_subset_keeps_ids_labels_and_images_together(zipped: ImageDataset) -> None:
    for dataset in (zipped, shapes(24)):
        part = dataset.subset([5, 2, -1]).subset([2, 0])
        assert part.image_ids == (dataset.image_ids[-1], dataset.image_ids[5])
        assert torch.equal(part.labels, dataset.labels[[-1, 5]])
        assert torch.equal(part[1][0], dataset[5][0])
        assert part.classes == dataset.classes


def test_labels_are_known_without_reading_an_image(tmp_path: Path) -> None:
    write_zip(tmp_path / "t.zip", {"a.png": b"not an image"})
    dataset = DataSource(write_text(tmp_path / "t.csv", "a.png,cat\n")).open()
    assert dataset.labels.tolist() == [[1]]
    with pytest.raises(DataError, match=r"t\.zip:a\.png: is not an image that can be read"):
        dataset[0]


def test_dataset_works_after_pickling_and_in_worker_processes(zipped: ImageDataset) -> None:
    zipped[0]  # opens the zip in this process; workers must not share its handle
    expected = [zipped[i][0] for i in range(len(zipped))]
    copy: ImageDataset = pickle.loads(pickle.dumps(zipped))
    assert torch.equal(copy[3][0], expected[3])
    loader = DataLoader(zipped, batch_size=4, num_workers=2)
    images = torch.cat([batch for batch, _ in loader])
    assert torch.equal(images, torch.stack(expected))


def test_labels_must_match_images_and_classes() -> None:
    with pytest.raises(DataError, match=r"labels must be \[images, classes\] = \[1, 2\], got \[3, 2\]"):
        ImageDataset(["cat", "dog"], ["a"], torch.zeros(3, 2), shapes(1).images)


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
