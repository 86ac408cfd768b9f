from pathlib import Path

import pytest
import torch

import tagseg
from tagseg._hub import MODEL_FILE
from tagseg.models.serialization import read_notes
from tagseg.predict import InferenceSettings
from tools import ship_model


def test_shipped_model_keeps_thresholds_and_masks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = tagseg.build_model("test_resnet", ("cat", "dog"), width=16)
    (tmp_path / "run").mkdir()
    notes = {"inference": InferenceSettings(thresholds=(0.2, 0.3), thresholds_from="tags").to_json()}
    tagseg.save_model(network, tmp_path / "run" / MODEL_FILE, notes=notes)
    ship_model.ship(tmp_path / "run", tmp_path / "shipped")
    assert read_notes(tmp_path / "shipped" / MODEL_FILE) == notes
    sizes = [(tmp_path / name / MODEL_FILE).stat().st_size for name in ("run", "shipped")]
    assert sizes[1] < 0.6 * sizes[0]
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected, shipped = network.eval()(x), tagseg.load_model(tmp_path / "shipped" / MODEL_FILE)(x)
    assert torch.allclose(shipped.scores, expected.scores, atol=1e-2)
    assert torch.allclose(shipped.masks, expected.masks, atol=1e-2)


def test_large_model_is_refused_and_the_old_one_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tagseg.save_model(tagseg.build_model("test_resnet", 2, width=16), tmp_path / MODEL_FILE)
    ship_model.ship(tmp_path, tmp_path / "shipped")
    before = (tmp_path / "shipped" / MODEL_FILE).read_bytes()
    monkeypatch.setattr(ship_model, "MAX_BYTES", 2**17)
    with pytest.raises(ValueError, match="MiB in half precision, and 0 are allowed"):
        ship_model.ship(tmp_path, tmp_path / "shipped")
    assert [file.read_bytes() for file in (tmp_path / "shipped").iterdir()] == [before]
    with pytest.raises(ValueError, match=r"holds no model.safetensors; name a run folder"):
        ship_model.ship(tmp_path / "nowhere", tmp_path / "shipped")
