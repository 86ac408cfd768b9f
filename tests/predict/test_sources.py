import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagseg.data import DataError
from tagseg.predict.predictor import Predictor
from tagseg.predict.sources import find_sources
from tests.predict.conftest import wavy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with images of two sizes, one of them damaged, and a zip."""
    root = tmp_path / "photos"
    (root / "cats").mkdir(parents=True)
    for name, size in (("a.png", (64, 64)), ("b.jpg", (64, 80)), ("cats/c.png", (64, 64)), ("cats/d.png", (64, 64))):
        Image.fromarray(wavy(*size, seed=len(name))).save(root / name)
    (root / "notes.txt").write_text("not an image")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as file:
        file.write(root / "a.png", "x/e.png")
        file.write(root / "b.jpg", "f.jpg")
    return root


def test_folders_patterns_zips_and_members(folder: Path) -> None:
    def names(*arguments: str | Path) -> list[str]:
        return [image.name for image in find_sources(arguments)]

    assert names(folder) == ["a", "b", "cats/c", "cats/d"]
    assert names(folder / "b.jpg") == ["b"]
    assert names(f"{folder}/*.png") == ["a"]
    assert names(f"{folder}/**/*.png") == ["a", "c", "d"]
    more = folder.parent / "more.zip"
    assert names(more) == ["x/e", "f"]
    assert names(f"{more}:x/e.png") == ["x/e"]
    assert names(folder / "a.png", folder) == ["a", "b", "cats/c", "cats/d"]  # each image once


def test_wrong_places_are_named(folder: Path) -> None:
    for argument, message in (
        (folder / "z.jpg", "z.jpg: does not exist; name an image, a folder"),
        (f"{folder}/*.tif", "no image matches this pattern"),
        (f"{folder.parent}/more.zip:g.png", "has no image g.png"),
    ):
        with pytest.raises(DataError, match=message):
            find_sources(argument)
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="this folder has no images; image files end in .bmp"):
        find_sources(folder / "empty")
    with pytest.raises(DataError, match="no images were given"):
        find_sources([])


def test_batches_change_nothing_and_keep_the_order(predictor: Predictor, folder: Path) -> None:
    single = list(predictor.predict_many([folder, wavy(64, 80)]))
    batched = list(predictor.predict_many([folder, wavy(64, 80)], batch_size=3))
    assert [found.name for found in batched] == ["a", "b", "cats/c", "cats/d", "image-0005"]
    for one, other in zip(single, batched, strict=True):
        assert one.name == other.name
        assert np.abs(one.probabilities - other.probabilities).max() < 1e-4


def test_damaged_images_raise_or_are_noted(predictor: Predictor, folder: Path) -> None:
    (folder / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match="broken.jpg: is not an image"):
        list(predictor.predict_many(folder))
    stream = predictor.predict_many(folder, skip_bad=True)
    assert len(list(stream)) == 4
    assert len(stream.skipped) == 1
    assert "broken.jpg" in stream.skipped[0]


def test_one_image_is_not_many(predictor: Predictor, folder: Path) -> None:
    with pytest.raises(ValueError, match="holds 4 images; use predict_many"):
        predictor.predict(folder)
    with pytest.raises(ValueError, match="batch_size must be 1 or more, got 0"):
        list(predictor.predict_many(folder, batch_size=0))
