"""COCO instances: image-level labels for training, decoded masks for evaluation."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagseg.data import DataError, DataSource
from tests.data.small_datasets import write_coco, write_text

CAT, DOG = 1, 2  # mask values: the categories by ascending ID


def annotation(number: int, category: int, segmentation: object, **more: object) -> dict[str, Any]:
    defaults = {"id": number, "image_id": 7, "category_id": category, "segmentation": segmentation, "area": 1}
    return {**defaults, **more}


def rectangle(left: float, top: float, right: float, bottom: float) -> list[list[float]]:
    return [[left, top, right, top, right, bottom, left, bottom]]


def test_json_file_and_folder_give_the_same_dataset(tmp_path: Path) -> None:
    path = write_coco(tmp_path, [annotation(1, 3, rectangle(0, 0, 4, 4))])
    for source in (DataSource(path), DataSource(tmp_path, split="val"), DataSource(path, images=tmp_path)):
        dataset = source.open()
        assert dataset.classes == ("cat", "dog")
        assert dataset.image_ids == ("one", "two")
        assert dataset.labels.tolist() == [[0, 1], [0, 0]]
        assert dataset[1][0].shape == (3, 8, 12)
    assert DataSource(path).open(["dog", "cat"]).labels.tolist() == [[1, 0], [0, 0]]


def test_polygon_covers_its_pixels(tmp_path: Path) -> None:
    masks = DataSource(write_coco(tmp_path, [annotation(1, 3, rectangle(2, 1, 7, 5))])).open_masks()
    expected = np.zeros((8, 12), np.uint8)
    expected[1:5, 2:7] = DOG
    assert np.array_equal(masks["one"], expected)
    assert not masks["two"].any()


def test_run_lengths_are_decoded_by_columns(tmp_path: Path) -> None:
    counts = [8 * 2 + 3, 2, 8 * 12 - 8 * 2 - 5]
    mask = DataSource(write_coco(tmp_path, [annotation(1, 1, {"size": [8, 12], "counts": counts})])).open_masks()["one"]
    assert np.argwhere(mask == CAT).tolist() == [[3, 2], [4, 2]]


def test_small_objects_lie_over_large_ones_and_crowds_are_ignored(tmp_path: Path) -> None:
    crowd = {"size": [8, 12], "counts": [0, 8 * 12]}
    mask = DataSource(
        write_coco(
            tmp_path,
            [
                annotation(1, 1, rectangle(4, 3, 7, 6), area=9),
                annotation(2, 3, rectangle(1, 1, 10, 7), area=54),
                annotation(3, 3, crowd, area=96, iscrowd=1),
            ],
        )
    ).open_masks()["one"]
    assert (mask[4, 5], mask[2, 2], mask[0, 11]) == (CAT, DOG, 255)


def test_category_ignored_is_no_class(tmp_path: Path) -> None:
    path = write_coco(tmp_path, [annotation(1, 3, rectangle(1, 1, 4, 4)), annotation(2, 255, rectangle(6, 2, 9, 5))])
    content = json.loads(path.read_text())
    content["categories"].append({"id": 255, "name": "ignored"})
    path.write_text(json.dumps(content))
    dataset, mask = DataSource(path).open(), DataSource(path).open_masks()["one"]
    assert dataset.classes == ("cat", "dog")
    assert dataset.labels.tolist() == [[0, 1], [0, 0]]
    assert (mask[2, 2], mask[3, 7], mask[0, 0]) == (DOG, 255, 0)


def test_given_classes_set_the_mask_values(tmp_path: Path) -> None:
    path = write_coco(tmp_path, [annotation(1, 3, rectangle(0, 0, 12, 8))])
    assert DataSource(path).open_masks(["dog", "cat"])["one"][4, 4] == 1


def test_masks_without_pycocotools_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_coco(tmp_path, [annotation(1, 1, {"size": [8, 12], "counts": "P3"})])
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(DataError, match=r"val\.json: COCO's masks need pycocotools; .*'tagseg\[coco\]'"):
        DataSource(path).open_masks()
    assert DataSource(path).open().labels.tolist() == [[1, 0], [0, 0]]


def test_compressed_run_lengths_are_decoded(tmp_path: Path) -> None:
    tools = pytest.importorskip("pycocotools.mask")
    region = np.zeros((8, 12), np.uint8, order="F")
    region[2:5, 3:9] = 1
    packed = tools.encode(region)
    packed["counts"] = packed["counts"].decode()
    mask = DataSource(write_coco(tmp_path, [annotation(1, 1, packed)])).open_masks()["one"]
    assert np.array_equal(mask, region * CAT)


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        (
            {"size": [8, 12], "counts": [5]},
            r"annotation 4 .*\(its run lengths cover 5 pixels, not 8 x 12\)",
        ),
        (None, r"annotation 4 has neither polygons nor run lengths"),
        ([["a", 1, 2, 3, 4, 5]], r"annotation 4 cannot be decoded"),
        ([7], r"annotation 4 cannot be decoded"),
        (rectangle(0, 0, 1e12, 1e12), r"annotation 4 cannot be decoded \(its polygon reaches far beyond the image"),
        (rectangle(0, 0, float("nan"), 4), r"annotation 4 cannot be decoded"),
        ({"size": [8, 12], "counts": "not run lengths"}, r"annotation 4 cannot be decoded"),
    ],
)
def test_mask_errors_name_the_annotation(tmp_path: Path, segmentation: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataSource(write_coco(tmp_path, [annotation(4, 1, segmentation)])).open_masks()["one"]


def test_invalid_files_are_data_errors(tmp_path: Path) -> None:
    path = write_coco(tmp_path, [annotation(1, 44, [])])
    with pytest.raises(DataError, match=r"annotations\[0\]\.category_id: 44 is not described in the file; correct"):
        DataSource(path).open()
    with pytest.raises(DataError, match="holds COCO's splits val; name one of them with split="):
        DataSource(tmp_path).open()
    no_name = {"images": [{"id": 5}], "annotations": [], "categories": []}
    with pytest.raises(
        DataError, match=r"w\.json: images\[0\]\.file_name: field required; .*correct or remove such an entry"
    ):
        DataSource(write_text(tmp_path / "w.json", json.dumps(no_name))).open()
    with pytest.raises(DataError, match=r"x\.json: categories: field required; name a COCO instances file"):
        DataSource(write_text(tmp_path / "x.json", json.dumps({"images": [], "annotations": []}))).open()
    with pytest.raises(DataError, match="is not valid JSON"):
        DataSource(write_text(tmp_path / "y.json", "{")).open()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 200_000, "is not valid JSON"),
        (f"[{'9' * 5000}]", "is not valid JSON"),
        ("[1]", r"x\.json: \[0\]: input should be a valid dictionary; export the project"),  # a list is Label Studio's
        ("1", r"x\.json: input should be a valid dictionary"),
        ('{"images": {}, "annotations": [], "categories": []}', r"images: input should be a valid list"),
        ('{"images": [1], "annotations": [], "categories": []}', r"images\[0\]: input should be a valid dictionary"),
        (
            '{"images": [], "annotations": [], "categories": [{"id": [1], "name": "cat"}]}',
            r"categories\[0\]\.id: must be",
        ),
        (
            '{"images": [], "annotations": [], "categories": [{"id": "x", "name": "cat"}]}',
            r"categories\[0\]\.id: invalid",
        ),
        ('{"images": [], "annotations": [{"image_id": []}], "categories": []}', r"annotations\[0\]\.image_id: must be"),
    ],
)
def test_malformed_content_is_a_data_error(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataSource(write_text(tmp_path / "x.json", content)).open()


def test_entries_of_one_file_are_one_image(tmp_path: Path) -> None:
    first = annotation(1, 3, rectangle(0, 0, 4, 4))
    second = annotation(2, 1, rectangle(6, 2, 10, 6), image_id=9)
    path = write_coco(tmp_path, [first, second])
    content = json.loads(path.read_text())
    content["images"][1]["file_name"] = "one.jpg"
    path.write_text(json.dumps(content))
    assert DataSource(path).open().labels.tolist() == [[1, 1]]
    assert np.unique(DataSource(path).open_masks()["one"]).tolist() == [0, CAT, DOG]
