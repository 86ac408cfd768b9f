"""The imagefolder as `datasets` loads it."""

import json
from pathlib import Path

import datasets
import numpy as np

import tagseg
from tagseg.data import DataSource
from tests.export.small_masks import CLASSES, NAMES, write_small_masks

datasets.disable_progress_bars()


def test_datasets_loads_images_masks_and_labels(tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data")
    out = tmp_path / "out"
    tagseg.export_masks(data, out, format="hf")
    loaded = datasets.load_dataset("imagefolder", data_dir=str(out), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    assert len(loaded["train"]) == len(NAMES)
    names = json.loads((out / "id2label.json").read_text())
    assert names == {"0": "background", **{str(value): name for value, name in enumerate(CLASSES, start=1)}}
    source = DataSource(data)
    images, masks = source.open(), source.open_masks()
    for row in loaded["train"]:
        image_id = str(Path(row["image"].filename).relative_to(out / "train").with_suffix(""))
        index = images.image_ids.index(image_id)
        assert np.array_equal(np.array(row["image"].convert("RGB")), images.images.read(index))
        assert np.array_equal(np.array(row["mask"]), masks[image_id])
        assert row["labels"] == [name for name, label in zip(CLASSES, images.labels[index], strict=True) if label]
