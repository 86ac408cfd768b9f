import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagseg.predict.confidence import Confidence
from tagseg.predict.outputs import OutputFiles
from tagseg.predict.predictor import Predictor
from tagseg.predict.writer import write_predictions
from tests.predict.conftest import wave_image


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
