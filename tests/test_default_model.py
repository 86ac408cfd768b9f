"""The model shipped with tagseg, which is used if no other is named."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import tagseg
from tagseg._hub import MODEL_FILE
from tagseg.cli import app
from tagseg.data.voc import VOC_CLASSES
from tagseg.models.serialization import DEFAULT_FOLDER
from tools.ship_model import MAX_BYTES


@pytest.fixture
def photo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write an image to an otherwise empty working directory."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)).save("photo.jpg")
    return tmp_path / "photo.jpg"


def test_default_model_has_the_voc_classes_and_is_small() -> None:
    model = tagseg.load()
    assert model.classes == VOC_CLASSES
    assert model.settings.thresholds_from == "tags"
    assert (DEFAULT_FOLDER / MODEL_FILE).stat().st_size <= MAX_BYTES
    assert (DEFAULT_FOLDER / "README.md").is_file()


def test_predict_needs_only_an_image(photo: Path) -> None:
    result = CliRunner().invoke(app, ["predict", "photo.jpg"])
    assert result.exit_code == 0, result.output
    index = json.loads(Path("predictions/predictions.json").read_text())
    assert index["model"]["name"] == "default"
    assert Image.open(Path("predictions") / index["images"][0]["files"]["mask"]).size == (80, 60)
    assert "the one that comes with tagseg" in result.output
    Path("default").mkdir()  # must not be taken for the model
    photo.rename("default/photo.jpg")
    result = CliRunner().invoke(app, ["predict", "default", "default/", "-o", "second"])
    assert result.exit_code == 0, result.output
    assert Path("second/photo_mask.png").read_bytes() == Path("predictions/photo_mask.png").read_bytes()
