"""A folder as a reader of the guide has it: photos.csv, photos/, and a model trained on them in runs/photos."""

import shutil
from pathlib import Path

import pytest

import tagseg
from tests.photos import write_photos
from tests.training.small_run import small_recipe


@pytest.fixture(scope="session")
def trained_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `reader_folder` copies; tests do not write to it."""
    folder = write_photos(tmp_path_factory.mktemp("guide"))
    (folder / "images").rename(folder / "photos")
    (folder / "ground truth").rename(folder / "masks")
    source = tagseg.DataSource(folder / "photos.csv", images=folder / "photos")
    tagseg.train(source, folder / "runs" / "photos", recipe=small_recipe(), workers=0)
    return folder


@pytest.fixture
def reader_folder(trained_photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: 40 photos with their table, their ground-truth masks, and a run."""
    folder = tmp_path / "reader"
    shutil.copytree(trained_photos, folder)
    monkeypatch.chdir(folder)
    return folder
