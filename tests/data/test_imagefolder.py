import json
from pathlib import Path

import pytest

from tagseg.data import DataError, DataSource
from tagseg.data.source import AnnotationFiles, Table
from tests.data.small_datasets import write_image, write_mask, write_text

NAMES = {"0": "background", "1": "dog", "2": "cat"}


def write_image_folder(root: Path, *more: object, names: object = NAMES) -> Path:
    """Write train/ with one.jpg of a cat, and two.jpg without a mask."""
    for name in ("one", "two"):
        write_image(root / "train" / f"{name}.jpg")
    write_mask(root / "train" / "masks" / "one.png", 2)
    lines = [{"file_name": "one.jpg", "mask_file_name": "masks/one.png"}, {"file_name": "two.jpg"}, *more]
    write_text(root / "id2label.json", json.dumps(names))
    return write_text(root / "train" / "metadata.jsonl", "\n".join(map(json.dumps, lines)))


def test_split_and_folder_give_the_same_dataset(tmp_path: Path) -> None:
    path = write_image_folder(tmp_path)
    for source in (DataSource(tmp_path, split="train"), DataSource(tmp_path / "train")):
        assert source.detect() == AnnotationFiles("image-folder", path)
        data, masks = source.open(), source.open_masks()
        assert data.classes == masks.classes == ("dog", "cat")
        assert data.image_ids == tuple(masks) == ("one",)
        assert data.labels.tolist() == [[0, 1]]
        assert (masks["one"] == 2).all()
    assert (DataSource(path.parent).open_masks(["cat", "dog"])["one"] == 1).all()
    (tmp_path / "id2label.json").unlink()
    assert DataSource(tmp_path / "train").detect() == Table(path, None)  # of image-level labels


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (3, r"metadata\.jsonl:3: input should be a valid dictionary"),
        ({}, r"metadata\.jsonl:3: has no file_name"),
        ({"file_name": "two.jpg", "mask_file_name": 4}, r"metadata\.jsonl:3: mask_file_name is not the name of a file"),
        ({"file_name": "two.jpg", "mask_file_name": "m.png"}, r"metadata\.jsonl:3: the mask m\.png does not exist"),
    ],
)
def test_errors_name_the_line(line: object, message: str, tmp_path: Path) -> None:
    write_image_folder(tmp_path, line)
    with pytest.raises(DataError, match=message):
        DataSource(tmp_path, split="train").open()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"0": "background", "1": "dog"}, r"one\.png: has the value 2, but the classes only reach 1"),
        ({"0": "background", "2": "dog"}, r"id2label\.json: the values have gaps"),
        ({"0": "background", "x": "dog"}, r"id2label\.json: the values have gaps or are no numbers"),
        ({"0": "background"}, r"id2label\.json: names no class"),
        (
            {"0": "background", "1": "ignored", "2": "a"},
            r"names the class 'ignored'; ignored pixels have the value 255",
        ),
        ([], r"id2label\.json: input should be a valid dictionary"),
    ],
)
def test_names_of_values_are_checked(names: object, message: str, tmp_path: Path) -> None:
    write_image_folder(tmp_path, names=names)
    with pytest.raises(DataError, match=message):
        DataSource(tmp_path, split="train").open()
