"""Folders for the Hugging Face hub, and models by name in the layout of its client's cache, offline."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tagseg
from tagseg.errors import ConfigError, WeightsError
from tests.photos import train_on_photos, write_photos
from tests.predict.conftest import wave_image


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="module")
def run(photos: Path) -> Path:
    folder = train_on_photos(photos)
    source = tagseg.DataSource(
        str(photos / "photos.csv"), (str(photos / "images"),), masks=(str(photos / "ground truth"),)
    )
    tagseg.evaluate(source, model=folder, out=folder)
    return folder


@pytest.fixture(scope="module")
def saved(run: Path, photos: Path) -> Path:
    return tagseg.load(run).save_pretrained(photos / "saved", license="apache-2.0")


def fill_cache(home: Path, saved: Path) -> None:
    """Write a repository as the hub's client keeps it: blobs, and a snapshot of links to them."""
    repository = home / "hub" / "models--someone--photos"
    revision = "0123456789abcdef0123456789abcdef01234567"
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    for index, file in enumerate(sorted(saved.iterdir())):
        blob = repository / "blobs" / f"{index:040x}"
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))


def run_tagseg(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    environment.pop("HF_HUB_CACHE", None)
    return subprocess.run(
        [sys.executable, "-m", "tagseg", *arguments], env=environment, capture_output=True, text=True, cwd=home
    )


def test_folder_is_a_model_like_any_other(run: Path, saved: Path) -> None:
    image = wave_image(80, 60)
    original, loaded = tagseg.load(run), tagseg.load(saved)
    assert loaded.settings == original.settings
    assert np.array_equal(loaded.predict(image).mask, original.predict(image).mask)
    config = json.loads((saved / "config.json").read_text())
    assert config["library_name"] == "tagseg"
    assert config["model"]["class_names"] == list(original.classes)
    assert config["inference"]["thresholds"] == list(original.settings.thresholds_per_class(len(original.classes)))


def test_card_tells_about_the_run(run: Path, saved: Path) -> None:
    card = (saved / "README.md").read_text()
    header = card.split("---\n")[1].splitlines()
    assert {"library_name: tagseg", "pipeline_tag: image-segmentation", "license: apache-2.0"} <= set(header)
    counts = json.loads((run / "config.json").read_text())["data"]
    for part, title in (("train", "training images"), ("validation", "validation images")):
        assert any(title in row and f" {counts[part]['image_count']} " in row for row in card.splitlines())
    assert all(name in card for name in ("triangle", "random weights", "test_resnet", "training.epochs"))
    evaluation = json.loads((run / "evaluation.json").read_text())
    mean = evaluation["protocols"]["predicted-tags"]["mean"]["iou"]
    assert any(row.startswith("| mean") and f"{100 * mean:.1f}" in row for row in card.splitlines())
    assert str(run.parent) not in card


def test_card_without_a_license_says_so_and_nothing_is_overwritten(saved: Path, tmp_path: Path) -> None:
    again = tagseg.load(saved).save_pretrained(tmp_path / "again")
    card = (again / "README.md").read_text()
    assert "license: unknown" in card
    assert "## Training" not in card  # the folder of the hub is no run
    with pytest.raises(ConfigError, match="model.safetensors: exists; choose another folder"):
        tagseg.load(saved).save_pretrained(saved)
    with pytest.raises(ConfigError, match="is not an identifier of the hub"):
        tagseg.load(saved).save_pretrained(tmp_path / "other", license="apache: 2")


@pytest.mark.slow
def test_models_are_loaded_by_name_from_the_cache(saved: Path, photos: Path, tmp_path: Path) -> None:
    fill_cache(tmp_path, saved)
    image = sorted((photos / "images").iterdir())[0]
    result = run_tagseg(tmp_path, "predict", str(image), "-m", "someone/photos", "-o", "out")
    assert result.returncode == 0, result.stderr
    index = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert index["model"]["name"] == "someone/photos"
    expected = tagseg.load(saved)
    assert index["classes"] == list(expected.classes)


@pytest.mark.slow
def test_missing_models_are_refused_in_one_line(tmp_path: Path) -> None:
    image = tmp_path / "photo.png"
    image.write_bytes(b"")
    result = run_tagseg(tmp_path, "predict", str(image), "-m", "someone/nothing")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("tagseg: someone/nothing: does not exist here, and HF_HUB_OFFLINE is set; name a run folder")


def test_a_hub_out_of_reach_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match="a/b: does not exist here, and http://127.0.0.1:9 cannot be reached"):
        tagseg.load("a/b")
    # The folder of a run with a typing error reads as a name too.
    with pytest.raises(WeightsError, match="runs/fotos: does not exist here"):
        tagseg.load("runs/fotos")
