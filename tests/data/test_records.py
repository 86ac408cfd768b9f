"""Records of all formats, merged into a dataset."""

from pathlib import Path

import pytest

from tagseg.data import DataError, DataSource
from tagseg.data.records import Record, Records
from tests.data.small_datasets import GREEN, RED, write_image, write_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", RED)
    write_image(tmp_path / "b.png", GREEN)
    return tmp_path


def test_classes_argument_sets_the_order(folder: Path) -> None:
    table = write_text(folder / "t.csv", "a.png,cat\nb.png,dog\n")
    assert DataSource(table).open(["zebra", "dog", "cat"]).labels.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_image_ids_are_unique(folder: Path) -> None:
    write_image(folder / "a.jpg")
    dataset = DataSource(write_text(folder / "t.csv", "a.png,cat\na.jpg,cat\nb.png,dog\n")).open()
    assert dataset.image_ids == ("a.png", "a.jpg", "b")


@pytest.mark.parametrize("name", ["a\nb.png", "a\x1b[31m.png", "a\x9b.png", "caf\udce9.png"])
def test_names_that_terminals_or_lists_of_names_would_break_are_refused(name: str) -> None:
    for record in (Record(name, frozenset(), None, "t.csv:3"), Record("a", frozenset({name}), None, "t.csv:3")):
        with pytest.raises(
            DataError, match=r"t\.csv:3: the (image|label) (.|\n)* has a character that is not printable; ren"
        ):
            Records.merge([record], None)
    Records.merge([Record("überall 猫 \u200d.png", frozenset({"naïve"}), None, "t.csv:3")], None)
