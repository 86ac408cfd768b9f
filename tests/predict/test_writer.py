import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagseg.errors import DataError
from tagseg.predict.predictor import Predictor
from tagseg.predict.render import overlay_palette
from tagseg.predict.writer import write_predictions
from tests.predict.conftest import wave_image


def test_masks_overlays_and_index_are_written(predictor: Predictor, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "cats").mkdir(parents=True)
    Image.fromarray(wave_image(64, 80)).save(photos / "a.png")
    Image.fromarray(wave_image(64, 64)).save(photos / "a.jpg")
    Image.fromarray(wave_image(64, 64)).save(photos / "cats" / "b.png")
    (photos / "bad.png").write_bytes(b"")
    index = write_predictions(predictor.predict_many(photos, skip_bad=True), tmp_path / "out")
    content = json.loads(index.read_text())
    assert [image["files"]["mask"] for image in content["images"]] == [
        "a_mask.png",
        "a-2_mask.png",
        "cats/b_mask.png",
    ]
    assert [image["path"] for image in content["images"]] == [
        str(photos / name) for name in ("a.jpg", "a.png", "cats/b.png")
    ]
    assert len(content["skipped"]) == 1
    for image in content["images"]:
        mask = Image.open(index.parent / image["files"]["mask"])
        assert mask.mode == "P"
        assert mask.size == (image["size"]["width"], image["size"]["height"])
        assert sum(region["area"] for region in image["classes"]) == (np.array(mask) > 0).sum()
        with Image.open(index.parent / image["files"]["overlay"]) as overlay:
            assert overlay.size == mask.size
        assert set(image["files"]) == {"mask", "overlay"}
    uncertainties = {
        image["files"]["mask"].removesuffix("_mask.png"): image["uncertainty"] for image in content["images"]
    }
    assert content["least_certain"] == sorted(uncertainties, key=lambda name: -uncertainties[name])
    with Image.open(tmp_path / "out" / "legend.png") as legend:
        colors = {color for _, color in legend.getcolors(1 << 20) or []}
    values = [region["value"] for image in content["images"] for region in image["classes"]]
    assert {tuple(color) for color in overlay_palette(3)[values].tolist()} <= colors


def test_index_has_the_predictions_before_an_error(predictor: Predictor, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(40):
        Image.fromarray(wave_image(32, 32)).save(photos / f"{number:02}.png")
    (photos / "bad.png").write_bytes(b"")
    with pytest.raises(DataError, match="bad.png"):
        write_predictions(predictor.predict_many(photos, batch_size=1), tmp_path / "out")
    entries = json.loads((tmp_path / "out" / "predictions.json").read_text())["images"]
    assert [entry["files"]["mask"] for entry in entries] == [f"{number:02}_mask.png" for number in range(40)]


def test_output_must_not_be_a_file(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="is a file; name a folder"):
        write_predictions([predictor.predict(wave_image(40, 40))], tmp_path / "out")
