"""The model that comes with tagseg: there without a download, small, and used where no other is named."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import tagseg
from tagseg.cli import app
from tagseg.data.voc import VOC_CLASSES
from tagseg.models.serialization import MODEL_FILE
from tagseg.predict.predictor import DEFAULT_FOLDER
from tools.ship_model import MAX_BYTES


@pytest.fixture
def photo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image alone in the folder that a person works in."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)).save("photo.jpg")
    return tmp_path / "photo.jpg"


def test_it_knows_the_classes_of_voc_and_is_small() -> None:
    model = tagseg.load()
    assert model.classes == VOC_CLASSES
    assert model.settings.thresholds_from == "tags"
    assert (DEFAULT_FOLDER / MODEL_FILE).stat().st_size <= MAX_BYTES
    assert (DEFAULT_FOLDER / "README.md").is_file()


def test_a_image_is_all_that_predict_needs(photo: Path) -> None:
    done = CliRunner().invoke(app, ["predict", "photo.jpg"])
    assert done.exit_code == 0, done.output
    index = json.loads(Path("predictions/predictions.json").read_text())
    assert index["images"][0]["model"]["name"] == "default"
    assert Image.open(Path("predictions") / index["images"][0]["files"]["mask"]).size == (80, 60)
    assert "the one that comes with tagseg" in done.output
    Path("default").mkdir()  # a folder of this name is not meant
    photo.rename("default/photo.jpg")
    named = CliRunner().invoke(app, ["predict", "default", "default/", "-o", "again"])
    assert named.exit_code == 0, named.output
    assert Path("again/photo_mask.png").read_bytes() == Path("predictions/photo_mask.png").read_bytes()
