"""Accuracy by image size."""

from pathlib import Path

import numpy as np

import tagseg
from tagseg.benchmarks.sizes import FACTORS, resized_dataset, resized_masks
from tagseg.data import DataSource
from tagseg.models.serialization import save_model
from tagseg.predict.settings import InferenceSettings, write_settings


def test_images_and_masks_are_resized_alike() -> None:
    source = DataSource("shapes:2")
    data = source.open()
    masks = source.open_masks(data.classes)
    for factor in FACTORS:
        image = resized_dataset(data, factor).images.read(1)
        mask = resized_masks(masks, factor)[data.image_ids[1]]
        assert image.shape[:2] == mask.shape == tuple(round(side * factor) for side in data.images.read(1).shape[:2])
        assert set(np.unique(mask)) <= set(np.unique(masks[data.image_ids[1]]))


def test_table_has_a_row_for_each_size(tmp_path: Path) -> None:
    source = DataSource("shapes:6", limit=2)
    file = tmp_path / "model.safetensors"
    save_model(tagseg.build_model("test_resnet", source.open().classes, width=16), file)
    write_settings(file, InferenceSettings(size=64))
    (report,) = tagseg.bench(["sizes"], model=file, data=source, threshold=0.0, device="cpu")
    (table,) = report.measurements.scores
    assert "2 images, working size 64" in table.title
    assert table.columns == ("predicted-tags", "true-tags")
    assert [name for name, _ in table.rows] == ["1x", "3x", "6x", "0.5x"]
    assert all(0 <= score <= 100 for _, scores in table.rows for score in scores)
