import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagseg.errors import DataError
from tagseg.predict.predictor import Predictor
from tagseg.predict.render import palette
from tagseg.predict.writer import write_predictions
from tests.predict.conftest import wavy


def test_masks_overlays_and_one_json(predictor: Predictor, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "cats").mkdir(parents=True)
    Image.fromarray(wavy(64, 80)).save(photos / "a.png")
    Image.fromarray(wavy(64, 64)).save(photos / "a.jpg")
    Image.fromarray(wavy(64, 64)).save(photos / "cats" / "b.png")
    (photos / "bad.png").write_bytes(b"")
    index = write_predictions(predictor.predict_many(photos, skip_bad=True), tmp_path / "out")
    said = json.loads(index.read_text())
    assert [image["files"]["mask"] for image in said["images"]] == [
        "a_mask.png",
        "a-2_mask.png",
        "cats/b_mask.png",
    ]
    assert [image["path"] for image in said["images"]] == [
        str(photos / name) for name in ("a.jpg", "a.png", "cats/b.png")
    ]
    assert len(said["skipped"]) == 1
    for image in said["images"]:
        mask = Image.open(index.parent / image["files"]["mask"])
        assert mask.mode == "P"
        assert mask.size == (image["size"]["width"], image["size"]["height"])
        assert sum(found["area"] for found in image["classes"]) == (np.array(mask) > 0).sum()
        Image.open(index.parent / image["files"]["overlay"]).load()


def test_what_is_written_before_an_error_is_in_the_index(predictor: Predictor, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(40):
        Image.fromarray(wavy(32, 32)).save(photos / f"{number:02}.png")
    (photos / "bad.png").write_bytes(b"")
    with pytest.raises(DataError, match="bad.png"):
        write_predictions(predictor.predict_many(photos, batch_size=1), tmp_path / "out")
    said = json.loads((tmp_path / "out" / "predictions.json").read_text())["images"]
    assert [one["files"]["mask"] for one in said] == [f"{number:02}_mask.png" for number in range(40)]


def test_a_saved_mask_keeps_its_values_and_shows_them(predictor: Predictor, tmp_path: Path) -> None:
    mask = np.repeat(np.arange(3, dtype=np.uint8), 40).reshape(3, 40)
    found = replace(predictor.predict(wavy(3, 40)), mask=mask)
    found.save(tmp_path / "mask.png")
    image = Image.open(tmp_path / "mask.png")
    assert np.array_equal(np.array(image), mask)
    assert np.array_equal(np.array(image.convert("RGB")), palette(3)[mask])
    with pytest.raises(ValueError, match="saved as PNG"):
        found.save(tmp_path / "mask.jpg")


def test_every_class_has_its_own_colour() -> None:
    colours = palette(5000)
    assert colours[0].tolist() == [0, 0, 0]
    assert colours[[1, 2, 15]].tolist() == [[128, 0, 0], [0, 128, 0], [192, 128, 128]]  # as PASCAL VOC has them
    assert len(np.unique(colours, axis=0)) == 5000


def test_the_legend_lies_below_the_image(predictor: Predictor) -> None:
    mask = np.zeros((400, 500), np.uint8)
    mask[100:200, 100:300] = 1
    found = replace(predictor.predict(wavy(400, 500)), mask=mask)
    plain, named = found.overlay(legend=False), found.overlay()
    assert plain.size == (500, 400)
    assert named.width == 500
    assert named.height > 400
    assert np.array_equal(np.array(named)[:400], np.array(plain))
    inside = np.array(plain)[150, 200].astype(int)
    assert inside[0] > inside[1] == inside[2]  # the first class is red, whatever the image's colour
    wide = replace(found, mask=np.ones((30, 5000), np.uint8), image=wavy(30, 5000)).overlay()
    assert wide.width == 2048
    empty = replace(found, mask=np.zeros((9, 5), np.uint8), image=wavy(9, 5)).overlay()
    assert min(empty.size) > 100


def test_a_long_legend_takes_more_lines(predictor: Predictor) -> None:
    found = predictor.predict(wavy(40, 400))
    short = replace(found, mask=np.ones((40, 400), np.uint8), scores={"cat": 0.5})
    mask = np.repeat(np.arange(20, dtype=np.uint8), 20)[None].repeat(40, 0)
    many = replace(found, mask=mask, scores={f"class number {k} " * k: 0.5 for k in range(1, 20)})
    assert many.labels == tuple(many.scores)
    assert many.overlay().height > short.overlay().height + 100


def test_a_file_is_no_folder(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="is a file; name a folder"):
        write_predictions([predictor.predict(wavy(40, 40))], tmp_path / "out")
