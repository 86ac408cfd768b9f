import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagseg.data import DataError, DataSource
from tagseg.data.brush_rle import encode_brush
from tagseg.data.source import AnnotationFiles
from tests.data.small_datasets import write_image, write_text


def region(label: str, rows: slice = slice(0, 4), **more: object) -> dict[str, Any]:
    """A region of some rows of an image of 12 x 8."""
    mask = np.zeros((8, 12), bool)
    mask[rows] = True
    value = {"format": "rle", "rle": encode_brush(mask), "brushlabels": [label]}
    return {"type": "brushlabels", "value": value, "original_width": 12, "original_height": 8, **more}


def task(image: str, *annotations: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    entries = [{"result": results, "was_cancelled": False} for results in annotations]
    return {"id": 7, "data": {"image": image}, "annotations": entries, **more}


def write_export(folder: Path, *tasks: dict[str, Any]) -> Path:
    for name in ("one", "two"):
        write_image(folder / "photos" / f"{name}.jpg")
    return write_text(folder / "export.json", json.dumps(tasks))


def test_brush_is_read_and_other_tasks_are_left_out(tmp_path: Path) -> None:
    choice = {"type": "choices", "value": {"choices": ["good"]}, "from_name": "quality"}
    regions = [region("dog"), region("cat", slice(2, 5)), region("ignored", slice(7, 8)), choice]
    path = write_export(
        tmp_path,
        task("/data/upload/3/0a1b2c3d-one.jpg", regions),
        task("/data/local-files/?d=photos/two.jpg", []),
        task("https://example.org/three.jpg"),
        task("https://example.org/four.jpg", [region("dog")])
        | {"annotations": [{"result": [], "was_cancelled": True}]},
    )
    assert DataSource(path).detect() == AnnotationFiles("label-studio", path)
    data, masks = DataSource(path).open(), DataSource(path).open_masks()
    assert data.classes == masks.classes == ("cat", "dog")
    assert data.image_ids == tuple(masks) == ("one", "photos/two")
    assert data.labels.tolist() == [[1, 1], [0, 0]]
    assert masks["one"][:, 3].tolist() == [2, 2, 1, 1, 1, 0, 0, 255]  # the later region lies above
    assert masks["photos/two"].shape == (8, 12)
    assert not masks["photos/two"].any()
    assert DataSource(path).open_masks(["dog", "cow", "cat"])["one"][0, 0] == 1


def test_ground_truth_or_else_the_last_annotation_counts(tmp_path: Path) -> None:
    first, last = task("one.jpg", [region("cat")], [region("dog")]), task("two.jpg", [region("cat")], [region("dog")])
    first["annotations"][0]["ground_truth"] = True
    assert DataSource(write_export(tmp_path, first, last)).open().labels.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([3], r"export\.json: \[0\]: input should be a valid dictionary; export the project again as JSON"),
        ([{"data": {}, "annotations": [{"result": []}]}], r"task 1: names no image"),
        ([task("http://[", [])], r"task 7: names an image by http://\[, which is not a URL"),
        ([task("one.jpg")], r"export\.json: has no annotated image"),
        ([task("one.jpg", [region("a", type="polygonlabels")])], r"task 7: region 1 is of the type polygonlabels"),
        ([task("one.jpg", [region("a", image_rotation=90)])], r"task 7: region 1 is of a rotated image"),
        ([task("one.jpg", [region("a", original_width=0)])], r"region 1: original_width: input should be greater"),
        ([task("one.jpg", [region("a", value={"rle": [1]})])], r"region 1: brushlabels: field required"),
        ([task("one.jpg", [region("a", value={"rle": [300], "brushlabels": ["a"]})])], r"run lengths that are no byte"),
        ([task("one.jpg", [region("a", original_height=9)])], r"the run lengths of region 1 cannot be decoded: they"),
        ([task("one.jpg", [region("a"), region("a", original_height=9)])], r"are of images of different sizes"),
        ([task("one.jpg", [region("a", original_height=10**5, original_width=10**5)])], r"has the size 100000 x 1000"),
    ],
)
def test_errors_name_the_task(content: list[Any], message: str, tmp_path: Path) -> None:
    path = write_export(tmp_path, *content)
    with pytest.raises(DataError, match=message):
        DataSource(path).open_masks()["one"]
