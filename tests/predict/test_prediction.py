import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tagseg
from tagseg.predict.confidence import Confidence
from tagseg.predict.prediction import OutputFiles
from tagseg.predict.predictor import Predictor
from tagseg.predict.render import palette
from tagseg.predict.writer import write_predictions
from tests.predict.conftest import Pixels, wave_image


def test_more_than_255_classes_are_saved_with_16_bits(image: Pixels, tmp_path: Path) -> None:
    prediction = Predictor(tagseg.build_model("resnet18", 300), device="cpu", precision="float32").predict(
        image, tags=["class 299"]
    )
    assert prediction.mask.dtype == np.uint16
    prediction = replace(prediction, mask=np.full_like(prediction.mask, 299))
    assert prediction.labels == ("class 299",)
    prediction.save(tmp_path / "mask.png")
    assert (np.array(Image.open(tmp_path / "mask.png")) == 299).all()
    assert prediction.overlay().width >= 80


def test_json_has_classes_size_settings_and_model(predictor: Predictor, image: Pixels) -> None:
    mask = np.zeros((64, 80), np.uint8)
    mask[10:20, 30:70] = 2
    content = json.loads(replace(predictor.predict(image), mask=mask).to_json())
    (dog,) = content["classes"]
    assert 0 < dog.pop("confidence") < 1
    assert dog == {"name": "dog", "value": 2, "area": 400, "share": 400 / 5120, "box": [30, 10, 70, 20]}
    assert content["size"] == {"width": 80, "height": 64}
    assert content["protocol"] == "predicted-tags"
    assert content["settings"]["thresholds_from"] == "paper"
    assert content["model"] == {"name": "model", "method": "single-stage", "backbone": "resnet18"}


def test_saved_mask_has_values_and_palette(predictor: Predictor, tmp_path: Path) -> None:
    mask = np.repeat(np.arange(3, dtype=np.uint8), 40).reshape(3, 40)
    prediction = replace(predictor.predict(wave_image(3, 40)), mask=mask)
    prediction.save(tmp_path / "mask.png")
    image = Image.open(tmp_path / "mask.png")
    assert np.array_equal(np.array(image), mask)
    assert np.array_equal(np.array(image.convert("RGB")), palette(3)[mask])
    with pytest.raises(ValueError, match="saved as PNG"):
        prediction.save(tmp_path / "mask.jpg")


def test_files_of_each_image_can_be_chosen(predictor: Predictor, tmp_path: Path) -> None:
    predictions = [replace(predictor.predict(wave_image(40, 60)), name="a")]
    index = write_predictions(predictions, tmp_path / "masks", files=OutputFiles(overlay=False))
    assert {path.name for path in index.parent.glob("[!.]*")} == {"a_mask.png", "predictions.json"}
    index = write_predictions(predictions, tmp_path / "all", files=OutputFiles(legend=True, confidence=True))
    assert {path.name for path in index.parent.glob("[!.]*")} == {
        "a_mask.png",
        "a_overlay.jpg",
        "a_confidence.png",
        "predictions.json",
    }
    with Image.open(index.parent / "a_confidence.png") as confidence:
        assert confidence.mode == "L"
        assert np.array_equal(np.array(confidence), np.round(255 * predictions[0].confidence))
    with Image.open(index.parent / "a_overlay.jpg") as overlay:
        assert overlay.width > 60
    with pytest.raises(ValueError, match="from 0 to 1"):
        OutputFiles(alpha=60)


def test_overlays_too_long_for_jpeg_are_reduced(predictor: Predictor, tmp_path: Path) -> None:
    long = replace(
        predictor.predict(wave_image(32, 32)),
        mask=np.zeros((2, 66_000), np.uint8),
        image=np.zeros((2, 66_000, 3), np.uint8),
        _confidence=Confidence(np.zeros((2, 66_000), np.uint8), (132_000.0, 0.0, 0.0)),
    )
    index = write_predictions([long], tmp_path)
    with Image.open(tmp_path / json.loads(index.read_text())["images"][0]["files"]["overlay"]) as overlay:
        assert overlay.width == 65_500
