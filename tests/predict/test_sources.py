from pathlib import Path

import pytest

from tagseg.data import DataError
from tagseg.predict.sources import find_sources


def test_folders_patterns_zips_and_members_are_found(folder: Path) -> None:
    def names(*arguments: str | Path) -> list[str]:
        return [image.name for image in find_sources(arguments)]

    assert names(folder) == ["a", "b", "cats/c", "cats/d"]
    assert names(folder / "b.jpg") == ["b"]
    assert names(f"{folder}/*.png") == ["a"]
    assert names(f"{folder}/**/*.png") == ["a", "c", "d"]
    archive = folder.parent / "more.zip"
    assert names(archive) == ["x/e", "f"]
    assert names(f"{archive}:x/e.png") == ["x/e"]
    assert names(folder / "a.png", folder) == ["a", "b", "cats/c", "cats/d"]  # each image once


def test_missing_images_are_named(folder: Path) -> None:
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
