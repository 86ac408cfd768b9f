"""Marks outlive the page, and come out as lists for annotation tools."""

import csv
import io
import json
from pathlib import Path

import pytest

from tagseg.app.images import ShownImages
from tagseg.app.marks import MARKS_FILE, Mark, marks_to_csv, marks_to_tasks, read_marks, set_mark
from tagseg.data import DataSource
from tagseg.errors import DataError
from tests.app.runs import shown_shapes

BAD: Mark = {"verdict": "bad", "comment": 'the "ring", it is a disc\nsays Zoë'}
GOOD: Mark = {"verdict": "good", "comment": ""}
NONE: Mark = {"verdict": "none", "comment": ""}


def test_marks_outlive_the_page(tmp_path: Path) -> None:
    assert read_marks(tmp_path) == {}
    set_mark(tmp_path, "val-00001", BAD)
    assert set_mark(tmp_path, "val-00000", GOOD) == {"val-00001": BAD, "val-00000": GOOD}
    assert read_marks(tmp_path) == {"val-00001": BAD, "val-00000": GOOD}
    set_mark(tmp_path, "val-00001", NONE)
    assert read_marks(tmp_path) == {"val-00000": GOOD}
    assert not list(tmp_path.glob("*.part"))


def test_a_comment_alone_is_kept(tmp_path: Path) -> None:
    set_mark(tmp_path, "a", {"verdict": "none", "comment": "ask Zoë"})
    assert read_marks(tmp_path)["a"]["comment"] == "ask Zoë"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 2, "images": {}}', '{"version": 1, "images": {"a": {"verdict": "x"}}}']
)
def test_a_damaged_file_is_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKS_FILE).write_text(text)
    with pytest.raises(DataError, match=MARKS_FILE):
        set_mark(tmp_path, "a", GOOD)
    assert (tmp_path / MARKS_FILE).read_text() == text


def test_lists_have_the_marked_images_in_their_order() -> None:
    images, marks = shown_shapes(), {"val-00002": BAD, "val-00001": GOOD, "of another run": GOOD}
    rows = list(csv.DictReader(io.StringIO(marks_to_csv(marks, images))))
    assert [(row["image"], row["mark"]) for row in rows] == [("val-00001", "good"), ("val-00002", "bad")]
    assert rows[1]["comment"] == BAD["comment"]
    assert rows[1]["tags"].split(",") == images.tags(2)
    tasks = [task["data"] for task in json.loads(marks_to_tasks(marks, images))]
    assert [(task["id"], task["image"], task["mark"]) for task in tasks] == [
        ("val-00001", "val-00001", "good"),
        ("val-00002", "val-00002", "bad"),
    ]
    assert tasks[1]["tags"] == images.tags(2)


def test_lists_name_the_file_of_an_image(tmp_path: Path) -> None:
    photos = Path(__file__).parents[2] / "src" / "tagseg" / "photos"
    (tmp_path / "photos.csv").write_text("chelsea.jpg,cat\nastronaut.jpg,person\n")
    data = DataSource(tmp_path / "photos.csv", images=photos).open()
    text = marks_to_csv({data.image_ids[1]: BAD}, ShownImages(data, None, have_tags=True))
    assert next(csv.DictReader(io.StringIO(text)))["file"] == str(photos / f"{data.image_ids[1]}.jpg")
