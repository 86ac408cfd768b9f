"""The model that comes with tagseg: there without a download, small, and used where no other is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import tagseg
from tagseg.cli import app
from tagseg.data.voc import VOC_CLASSES
from tagseg.models.files import MODEL_FILE, read_notes
from tagseg.predict import InferenceSettings
from tagseg.predict.predictor import DEFAULT_FOLDER
from tagseg.reproduction import ship


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
    assert (DEFAULT_FOLDER / MODEL_FILE).stat().st_size <= ship.MOST_BYTES
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


def test_shipping_keeps_the_thresholds_and_the_masks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = tagseg.build_model("test_resnet", ("cat", "dog"), width=16)
    (tmp_path / "run").mkdir()
    notes = {"inference": InferenceSettings(thresholds=(0.2, 0.3), thresholds_from="tags").to_json()}
    tagseg.save_model(network, tmp_path / "run" / MODEL_FILE, notes=notes)
    ship.ship(tmp_path / "run", tmp_path / "shipped")
    assert read_notes(tmp_path / "shipped" / MODEL_FILE) == notes
    sizes = [(tmp_path / name / MODEL_FILE).stat().st_size for name in ("run", "shipped")]
    assert sizes[1] < 0.6 * sizes[0]
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected, found = network.eval()(x), tagseg.load_model(tmp_path / "shipped" / MODEL_FILE)(x)
    assert torch.allclose(found.scores, expected.scores, atol=1e-2)
    assert torch.allclose(found.masks, expected.masks, atol=1e-2)


def test_what_is_too_large_is_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tagseg.save_model(tagseg.build_model("test_resnet", 2, width=16), tmp_path / MODEL_FILE)
    ship.ship(tmp_path, tmp_path / "shipped")
    before = (tmp_path / "shipped" / MODEL_FILE).read_bytes()
    monkeypatch.setattr(ship, "MOST_BYTES", 2**17)
    with pytest.raises(ValueError, match="MiB in half precision, and 0 are allowed"):
        ship.ship(tmp_path, tmp_path / "shipped")
    assert [file.read_bytes() for file in (tmp_path / "shipped").iterdir()] == [before]
    with pytest.raises(ValueError, match=r"holds no model.safetensors; name a run's folder"):
        ship.ship(tmp_path / "nowhere", tmp_path / "shipped")
