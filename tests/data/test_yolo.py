from pathlib import Path

import numpy as np
import pytest

from tagseg.data import DataError, DataSource
from tagseg.data.source import AnnotationFiles
from tests.data.small_datasets import write_image, write_text

DATA = "train: images/train\nval: images/val\nnames:\n  0: dog\n  1: ignored\n  2: cat\n"


def write_yolo(root: Path, lines: str = "0 0 0 0.5 0 0.5 1 0 1\n", *, data: str = DATA) -> Path:
    """Write images of 12 x 8: one.jpg with these lines, two.jpg without lines, three.jpg without a file; four.jpg."""
    for name in ("train/one", "train/two", "train/three", "val/four"):
        write_image(root / "images" / f"{name}.jpg")
    write_text(root / "labels" / "train" / "one.txt", lines)
    write_text(root / "labels" / "train" / "two.txt", "")
    write_text(root / "labels" / "val" / "four.txt", "2 0 0 1 0 1 1\n")
    return write_text(root / "data.yaml", data)


def test_folder_and_file_give_the_same_dataset(tmp_path: Path) -> None:
    path = write_yolo(tmp_path)
    assert DataSource(tmp_path, split="val").detect() == AnnotationFiles("yolo", path, "val")
    for source in (tmp_path, path):
        data, masks = DataSource(source, split="train").open(), DataSource(source, split="train").open_masks()
        assert data.classes == masks.classes == ("dog", "cat")
        assert data.image_ids == tuple(masks) == ("one", "two")  # nobody has annotated the third
        assert data.labels.tolist() == [[1, 0], [0, 0]]
        assert np.array_equal(masks["one"] == 1, np.arange(12)[None].repeat(8, 0) < 6)
        assert not masks["two"].any()
    assert DataSource(path, split="val").open_masks(["cat", "dog"])["four"].max() == 1
    with pytest.raises(DataError, match=r"data\.yaml: holds the splits train, val; name one of them with split="):
        DataSource(path).open()


def test_small_objects_lie_over_large_ones(tmp_path: Path) -> None:
    lines = "2 0.25 0.25 0.5 0.25 0.5 0.5 0.25 0.5\n0 0 0 1 0 1 1 0 1\n1 0.75 0 1 0 1 0.25 0.75 0.25\n"
    write_yolo(tmp_path, lines)
    mask = DataSource(tmp_path, split="train").open_masks()["one"]
    assert (mask[3, 4], mask[0, 0], mask[1, 10]) == (2, 1, 255)


def test_images_may_be_listed_in_a_file(tmp_path: Path) -> None:
    names = 'names: ["dog", "x", "cat"]\n'
    path = write_yolo(tmp_path, data=f"path: .\ntrain: lists/train.txt\n{names}")
    write_text(tmp_path / "lists" / "train.txt", "../images/train/one.jpg\n../images/train/two.jpg\n")
    assert len(DataSource(path).open()) == len(DataSource(path).open_masks()) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.5 0.5 1 1", r"one\.txt:2: is a box, not a polygon; export polygons"),
        ("0 0 0 1 1", r"one\.txt:2: is a box"),
        ("0 0 0 1 1 1", r"one\.txt:2: has 5 numbers, not x and y of three corners"),
        ("3 0 0 1 0 1 1", r"one\.txt:2: '3' is not the number of one of the 3 classes"),
        ("1.5 0 0 1 0 1 1", r"one\.txt:2: '1\.5' is not the number"),
        ("0 0 0 1 0 1 x", r"one\.txt:2: has coordinates that are no numbers"),
        ("0 0 0 12 0 12 8", r"one\.txt:2: has coordinates that are not from 0 to 1; divide them"),
        ("0 0 0 nan 0 1 1", r"one\.txt:2: has coordinates that are not from 0 to 1"),
    ],
)
def test_errors_name_the_line(line: str, message: str, tmp_path: Path) -> None:
    write_yolo(tmp_path, f"0 0 0 1 0 1 1\n{line}\n")
    with pytest.raises(DataError, match=message):
        DataSource(tmp_path, split="train").open_masks()["one"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("train: [", r"data\.yaml: is not valid YAML"),
        ("- 1", r"data\.yaml: input should be a valid dictionary; name a data\.yaml of YOLO"),
        ("train: images/train", r"data\.yaml: names: names no class"),
        ("train: 3\nnames: [a]", r"data\.yaml: train\.str: input should be a valid string"),
        ("names: [a]", r"data\.yaml: names no folder of images; write for example train: images/train"),
        ("train: images/none\nnames: [a]", r"its folder of images .*images/none does not exist"),
        ("train: images/train\nnames: {0: a, 2: b}", r"names: the numbers of the classes have gaps"),
        ("train: images/train\nnames: [a, a]", r"names: 'a' is named twice"),
        ("train: labels/train\nnames: [a]", r"data\.yaml: has no annotated image"),
    ],
)
def test_errors_name_the_entry(data: str, message: str, tmp_path: Path) -> None:
    path = write_yolo(tmp_path, data=data)
    with pytest.raises(DataError, match=message):
        DataSource(path).open()
