"""One folder per class."""

from pathlib import Path

import pytest

from tagseg.data import DataError, DataSource
from tests.data.small_datasets import BLUE, GREEN, RED, write_image, write_text


def test_folder_name_is_the_label(tmp_path: Path) -> None:
    write_image(tmp_path / "dog" / "1.jpg")
    write_image(tmp_path / "traffic light" / "deeper" / "2.PNG")
    write_text(tmp_path / "dog" / "notes.txt", "not an image")
    write_text(tmp_path / ".cache" / "x.jpg", "not a class")
    dataset = DataSource(tmp_path).open()
    assert dataset.classes == ("dog", "traffic light")
    assert dataset.image_ids == ("dog/1", "traffic light/deeper/2")
    assert dataset.labels.tolist() == [[1, 0], [0, 1]]


def test_file_in_two_class_folders_has_both_labels(tmp_path: Path) -> None:
    write_image(tmp_path / "cat" / "both.png", BLUE)
    write_image(tmp_path / "dog" / "both.png", BLUE)
    write_image(tmp_path / "cat" / "1.png", RED)
    write_image(tmp_path / "dog" / "1.png", GREEN)  # the same name, another image
    dataset = DataSource(tmp_path).open()
    assert dict(zip(dataset.image_ids, dataset.labels.tolist(), strict=True)) == {
        "cat/1": [1, 0],
        "cat/both": [1, 1],
        "dog/1": [0, 1],
    }


def test_split_must_be_named_if_there_are_several(tmp_path: Path) -> None:
    write_image(tmp_path / "train" / "dog" / "1.jpg")
    write_image(tmp_path / "val" / "dog" / "2.jpg")
    assert DataSource(tmp_path, split="val").open().image_ids == ("dog/2",)
    with pytest.raises(DataError, match="holds the splits train, val; name one of them with split="):
        DataSource(tmp_path).open()
    with pytest.raises(DataError, match=r"unknown split 'vall'.*Did you mean 'val'"):
        DataSource(tmp_path, split="vall").open()


def test_folder_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no table and no images in folders named like their class"):
        DataSource(tmp_path).open()
