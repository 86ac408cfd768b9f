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
    expected = DataSource(data).open_masks()
    # A link's own path is what counts for ultralytics, so images may be linked.
    assert sorted(masks) == sorted(NAMES)
    for image_id, mask in masks.items():
        values = np.where(expected[image_id] == 255, len(names), expected[image_id])
        assert bool(mask.any()) == bool(values.any())
        # OpenCV paints the corners of a polygon too, so its regions reach one pixel too far to the right and below.
        for value in np.unique(values[values > 0]):
            assert ((mask == value) & (values == value)).sum() > 0.5 * (values == value).sum(), (image_id, value)


@needs_real_tools
@pytest.mark.slow
def test_ultralytics_reads_larger_masks_to_the_pixel_at_their_rims(tmp_path: Path) -> None:
    tagseg.export_masks("shapes:3", tmp_path / "out", format="yolo")
    _, masks = read_with("ultralytics_yolo", tmp_path / "out", tmp_path)
    for image_id, expected in DataSource("shapes:3").open_masks().items():
        inner = np.ones_like(expected, bool)  # pixels whose neighbors are of the same class
        for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
            inner &= np.roll(expected, step, axis) == expected
        assert np.array_equal(masks[image_id][inner], expected[inner])


def test_data_file_says_how_to_train_without_ignored_pixels(tmp_path: Path) -> None:
    tagseg.export_masks(write_small_masks(tmp_path / "data"), tmp_path / "out", format="yolo")
    text = (tmp_path / "out" / "data.yaml").read_text()
    assert "# Train without ignored pixels: classes=[0, 1, 2]" in text
    assert yaml.safe_load(text)["names"] == {0: CLASSES[0], 1: CLASSES[1], 2: "no", 3: "ignored"}
