"""Records of all formats, merged into a dataset."""

from pathlib import Path

import pytest
import torch

from tagseg.data import open_dataset
from tests.data.small_datasets import GREEN, RED, write_image, write_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", RED)
    write_image(tmp_path / "b.png", GREEN)
    return tmp_path


def test_classes_argument_sets_the_order(folder: Path) -> None:
    table = write_text(folder / "t.csv", "a.png,cat\nb.png,dog\n")
    assert open_dataset(table, classes=["zebra", "dog", "cat"]).labels.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_image_ids_are_unique(folder: Path) -> None:
    write_image(folder / "a.jpg")
    dataset = open_dataset(write_text(folder / "t.csv", "a.png,cat\na.jpg,cat\nb.png,dog\n"))
    assert dataset.image_ids == ("a.png", "a.jpg", "b")


def test_max_side_reduces_decoded_images(tmp_path: Path) -> None:
    write_image(tmp_path / "a.jpg", size=(400, 100))
    dataset = open_dataset(write_text(tmp_path / "t.csv", "a.jpg,cat\n"), max_side=80)
    assert dataset[0][0].shape == (3, 20, 80)
    assert dataset[0][0].dtype == torch.uint8
