"""CVAT's format as datumaro, which CVAT imports with, reads it."""

import json
from pathlib import Path

import numpy as np

import tagseg
from tagseg.data import DataSource
from tests.export.real_tools import needs_real_tools, read_with
from tests.export.small_masks import CLASSES, NAMES, write_small_masks


@needs_real_tools
def test_datumaro_reads_labels_and_masks(tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data")
    tagseg.export_masks(data, tmp_path / "out", format="cvat")
    names, masks = read_with("datumaro_cvat", tmp_path / "out", tmp_path)
    assert names == [*CLASSES, "ignored"]
    assert sorted(masks) == sorted(NAMES)
    for image_id, expected in DataSource(data).open_masks().items():
        assert np.array_equal(masks[image_id], np.where(expected == 255, len(names), expected)), image_id


def test_labels_for_the_task_are_declared(tmp_path: Path) -> None:
    tagseg.export_masks(write_small_masks(tmp_path / "data", ignored=False), tmp_path / "out", format="cvat")
    labels = json.loads((tmp_path / "out" / "cvat_labels.json").read_text())
    assert [label["name"] for label in labels] == [*CLASSES, "ignored"]
    assert labels[0] == {"name": CLASSES[0], "color": "#800000", "attributes": []}
    lines = (tmp_path / "out" / "labelmap.txt").read_text().splitlines()
    assert lines[1:3] == ["background:0,0,0::", f"{CLASSES[0]}:128,0,0::"]
    assert lines[-1] == "ignored:224,224,192::"
