"""Marks that a person gave to the images of a run: good or bad, and a comment. They are kept in RUN/marks.json."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict  # that of pydantic before Python 3.12

from tagseg._files import hold_folder, write_text
from tagseg._json import parse_json, validated
from tagseg.app.images import ShownImages
from tagseg.data.files import ImageFiles, read_text

MARKS_FILE = "marks.json"
_DAMAGED = "fix it or move it away: the marks of this run are not replaced"


class Mark(TypedDict):
    """Mark of an image."""

    verdict: Literal["good", "bad", "none"]
    comment: str


class _File(TypedDict):
    version: Literal[1]
    images: dict[str, Mark]


def read_marks(run: Path) -> dict[str, Mark]:
    """Marks of a run by image ID.

    Raises:
        DataError: The file is damaged.
    """
    path = run / MARKS_FILE
    if not path.is_file():
        return {}
    return validated(_File, parse_json(read_text(path), path, _DAMAGED), path, _DAMAGED)["images"]


def set_mark(run: Path, image_id: str, mark: Mark) -> dict[str, Mark]:
    """Set the mark of an image, or remove one that says nothing.

    Returns:
        All marks; those that others have set meanwhile are kept.
    """
    with hold_folder(run, file=MARKS_FILE):
        marks = read_marks(run)
        marks.pop(image_id, None)
        if mark["verdict"] != "none" or mark["comment"]:
            marks[image_id] = mark
        text = json.dumps({"version": 1, "images": marks}, indent=2, ensure_ascii=False) + "\n"
        write_text(run / MARKS_FILE, text)
    return marks


def marks_to_csv(marks: Mapping[str, Mark], images: ShownImages) -> str:
    """Marked images as a table: image, file, mark, comment, tags."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["image", "file", "mark", "comment", "tags"])
    for image_id, index in _marked(marks, images).items():
        mark = marks[image_id]
        writer.writerow([image_id, _file(images, index), _word(mark), mark["comment"], ",".join(images.tags(index))])
    return buffer.getvalue()


def marks_to_tasks(marks: Mapping[str, Mark], images: ShownImages) -> str:
    """Marked images as tasks of Label Studio, which other tools read as plain JSON."""
    tasks = [
        {
            "data": {
                "image": _file(images, index) or image_id,
                "id": image_id,
                "mark": _word(marks[image_id]),
                "comment": marks[image_id]["comment"],
                "tags": images.tags(index),
            }
        }
        for image_id, index in _marked(marks, images).items()
    ]
    return json.dumps(tasks, indent=2, ensure_ascii=False) + "\n"


def _marked(marks: Mapping[str, Mark], images: ShownImages) -> dict[str, int]:
    """Index of each image that has a mark, in the order of the images."""
    return {image_id: index for index, image_id in enumerate(images.data.image_ids) if image_id in marks}


def _word(mark: Mark) -> str:
    return "" if mark["verdict"] == "none" else mark["verdict"]


def _file(images: ShownImages, index: int) -> str:
    """File of an image; empty if it has none."""
    reader = images.data.images
    return str(reader.files[index]) if isinstance(reader, ImageFiles) else ""
