"""Label Studio's tasks as label-studio-sdk reads them."""

import json
from pathlib import Path

import numpy as np

import tagseg
from tagseg.data import DataSource
from tests.export.real_tools import needs_real_tools, read_with
from tests.export.small_masks import CLASSES, NAMES, write_small_masks


@needs_real_tools
def test_sdk_validates_tasks_and_decodes_masks(tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data")
    tagseg.export_masks(data, tmp_path / "out", format="label-studio")
    names, masks = read_with("label_studio", tmp_path / "out", tmp_path)
    assert names == [*CLASSES, "ignored"]
    assert sorted(masks) == sorted(f"{name}.png" for name in NAMES)
    for image_id, expected in DataSource(data).open_masks().items():
        mask = masks[f"{image_id}.png"]
        assert np.array_equal(np.broadcast_to(mask, expected.shape), np.where(expected == 255, 4, expected)), image_id


def test_images_are_local_files_below_the_document_root(tmp_path: Path) -> None:
    tagseg.export_masks("shapes:2", tmp_path / "out", format="label-studio")
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert [task["data"]["image"] for task in tasks] == [
        "/data/local-files/?d=images/train-00000.png",
        "/data/local-files/?d=images/train-00001.png",
    ]
    assert (tmp_path / "out" / "images" / "train-00001.png").is_file()
