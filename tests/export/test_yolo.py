"""YOLO's files as ultralytics reads them."""

from pathlib import Path

import numpy as np
import pytest
import yaml

import tagseg
from tagseg.data import DataSource
from tests.export.real_tools import needs_real_tools, read_with
from tests.export.small_masks import CLASSES, NAMES, write_small_masks


@needs_real_tools
@pytest.mark.slow
def test_ultralytics_reads_names_and_masks(tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data")
    tagseg.export_masks(data, tmp_path / "out", format="yolo", image_files="link")
    names, masks = read_with("ultralytics_yolo", tmp_path / "out", tmp_path)
    assert names == [*CLASSES, "ignored"]
    assert sorted(masks) == sorted(NAMES)
    for image_id, expected in DataSource(data).open_masks().items():
        values = np.where(expected == 255, len(names), expected)
        assert set(np.unique(masks[image_id])) == set(np.unique(values)), image_id


@needs_real_tools
@pytest.mark.slow
def test_ultralytics_draws_the_same_masks(tmp_path: Path) -> None:
    tagseg.export_masks("shapes:3", tmp_path / "out", format="yolo")
    _, masks = read_with("ultralytics_yolo", tmp_path / "out", tmp_path)
    for image_id, expected in DataSource("shapes:3").open_masks().items():
        # OpenCV draws the right and lower rim of a polygon too: pixels beside another class are left out.
        inner = np.ones_like(expected, bool)
        for shift in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
            inner &= np.roll(expected, shift, axis=(0, 1)) == expected
        assert (masks[image_id] == expected)[inner].mean() > 0.998, image_id


def test_data_file_says_how_to_train_without_ignored_pixels(tmp_path: Path) -> None:
    tagseg.export_masks(write_small_masks(tmp_path / "data"), tmp_path / "out", format="yolo")
    text = (tmp_path / "out" / "data.yaml").read_text()
    assert "# Train without ignored pixels: classes=[0, 1, 2]" in text
    assert yaml.safe_load(text)["names"] == {0: CLASSES[0], 1: CLASSES[1], 2: "no", 3: "ignored"}
