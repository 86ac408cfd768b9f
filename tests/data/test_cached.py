"""Decoded pictures are kept, and never those of another file."""

import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagseg.data import ImageTags, open_dataset, shapes
from tagseg.data.cached import cached, removed_at_the_end


@pytest.fixture
def data(tmp_path: Path) -> ImageTags:
    for name, colour in (("a", "red"), ("b", "blue")):
        Image.new("RGB", (20, 10), colour).save(tmp_path / f"{name}.png")
    (tmp_path / "tags.csv").write_text("image,labels\na.png,x\nb.png,y\n")
    return open_dataset(tmp_path / "tags.csv", images=[tmp_path])


def test_pictures_are_the_same_and_decoded_once(data: ImageTags, tmp_path: Path) -> None:
    kept = cached(data, tmp_path / "decoded")
    for _ in range(2):
        for index in range(2):
            assert np.array_equal(kept.pictures.read(index), data.pictures.read(index))
    assert len(list((tmp_path / "decoded").glob("*.npy"))) == 2
    assert np.array_equal(kept.subset([1]).pictures.read(0), data.pictures.read(1))
    assert kept.pictures.digest(0) == data.pictures.digest(0)
    assert kept.pictures.facts(0) == data.pictures.facts(0)


def test_a_file_that_changes_is_decoded_anew(data: ImageTags, tmp_path: Path) -> None:
    kept = cached(data, tmp_path / "decoded")
    kept.pictures.read(0)
    Image.new("RGB", (30, 30), "green").save(tmp_path / "a.png")
    assert kept.pictures.read(0).shape == (30, 30, 3)


def test_without_its_folder_pictures_are_still_read(data: ImageTags, tmp_path: Path) -> None:
    kept = cached(data, tmp_path / "decoded")
    shutil.rmtree(tmp_path / "decoded")
    assert kept.pictures.read(0).shape == (10, 20, 3)


def test_pictures_that_are_not_in_files_stay_as_they_are(tmp_path: Path) -> None:
    generated = shapes(3, size=48)
    assert cached(generated, tmp_path / "decoded") is generated
    assert not (tmp_path / "decoded").exists()


def test_the_folder_is_removed_however_the_work_ends(data: ImageTags, tmp_path: Path) -> None:
    folder = tmp_path / "decoded"
    with suppress(KeyboardInterrupt), removed_at_the_end(folder):
        cached(data, folder).pictures.read(0)
        assert folder.exists()
        raise KeyboardInterrupt
    assert not folder.exists()
