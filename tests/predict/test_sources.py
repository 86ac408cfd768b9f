import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tagseg.data import DataError
from tagseg.predict.sources import MemorySource, find_sources, summarize_left_out
from tests.data.small_datasets import image_bytes, write_zip
from tests.predict.conftest import Pixels


def test_folders_patterns_zips_and_members_are_found(folder: Path) -> None:
    def names(*arguments: str | Path) -> list[str]:
        return [image.name for image in find_sources(arguments).images]

    assert names(folder) == ["a", "b", "cats/c", "cats/d"]
    assert names(folder / "b.jpg") == ["b"]
    assert names(f"{folder}/*.png") == ["a"]
    assert names(f"{folder}/**/*.png") == ["a", "c", "d"]
    archive = folder.parent / "more.zip"
    assert names(archive) == ["x/e", "f"]
    assert names(f"{archive}:x/e.png") == ["x/e"]
    assert names(f"{folder}/**/**/*.png") == ["a", "c", "d"]  # each file once
    assert names(folder / "a.png", folder) == ["a", "a-2", "b", "cats/c", "cats/d"]  # every argument keeps its images


def test_file_objects_can_be_read_twice(folder: Path) -> None:
    file = BytesIO((folder / "a.png").read_bytes())
    (source,) = find_sources([file]).images
    assert isinstance(source, MemorySource)
    assert np.array_equal(source.read(), source.read())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_floating_point_tensors_are_converted(image: Pixels, dtype: torch.dtype) -> None:
    tensor = torch.from_numpy(image).permute(2, 0, 1) / 255
    (source,) = find_sources(tensor.to(dtype)).images
    assert isinstance(source, MemorySource)
    assert np.abs(source.read().astype(int) - image).max() <= 1


def test_missing_images_are_named(folder: Path) -> None:
    for argument, message in (
        (folder / "z.jpg", "z.jpg: does not exist; name an image, a folder"),
        ("~nouser/a.png", "~nouser/a.png: does not exist"),
        (f"{folder}/*.tif", "no image matches this pattern"),
        (f"{folder.parent}/more.zip:g.png", "has no image g.png"),
    ):
        with pytest.raises(DataError, match=message):
            find_sources(argument)
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="this folder has no images; image files end in .avif, .bmp"):
        find_sources(folder / "empty")
    with pytest.raises(DataError, match="no images were given"):
        find_sources([])


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there ** may be a part of a name")
def test_wrong_patterns_are_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"photos/\*\*.png: is not a pattern .*; write for example photos/\*\*/\*.jpg"):
        find_sources(f"{folder}/**.png")


def test_files_that_are_not_read_are_named(folder: Path) -> None:
    for name in ("layers.psd", "cats/more.psd", "clip.mp4"):
        (folder / name).write_bytes(b"")
    sources = find_sources(folder)
    assert [image.name for image in sources.images] == ["a", "b", "cats/c", "cats/d"]  # notes.txt is no image
    assert sources.left_out == {
        ".psd is not read; convert it to JPEG or PNG": [str(folder / "cats" / "more.psd"), str(folder / "layers.psd")],
        "videos need --every SECONDS (every= in Python)": [str(folder / "clip.mp4")],
    }
    assert summarize_left_out(sources.left_out) == (
        f"2 files, such as {folder / 'cats' / 'more.psd'} (.psd is not read; convert it to JPEG or PNG), "
        f"1 file {folder / 'clip.mp4'} (videos need --every SECONDS (every= in Python))"
    )
    assert find_sources(f"{folder}/**/*").left_out.keys() == sources.left_out.keys()
    (folder / "only").mkdir()
    (folder / "only" / "a.psd").write_bytes(b"")
    with pytest.raises(DataError, match="this folder has no images; left out: 1 file .*a.psd"):
        find_sources(folder / "only")


def test_urls_and_standard_input_are_images(image: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = find_sources("https://example.org/photos/my%20dog.jpg?size=3").images
    assert (source.name, source.path) == ("my dog", "https://example.org/photos/my%20dog.jpg?size=3")
    with pytest.raises(DataError, match="ftp://example.org/a.jpg: is neither http nor https"):
        find_sources("ftp://example.org/a.jpg")
    file = BytesIO()
    Image.fromarray(image).save(file, "PNG")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(file.getvalue())))
    (source,) = find_sources("-").images
    assert isinstance(source, MemorySource)
    assert (source.name, source.path) == ("stdin", "-")
    assert np.array_equal(source.read(), image)


def test_names_that_no_file_system_or_terminal_would_take_get_results(tmp_path: Path) -> None:
    members = {f"{'x' * 400}{end}.png": image_bytes() for end in "ab"} | {"a\nb\x1b[31m.png": image_bytes()}
    sources = find_sources(write_zip(tmp_path / "t.zip", members)).images
    assert len({source.name for source in sources}) == 3
    for source in sources:
        (tmp_path / f"{source.name}_overlay.jpg.0123abcd.part").touch()
        assert source.name.isprintable()
        assert source.path is not None
        assert source.path.isprintable()


@pytest.mark.parametrize(("file", "pattern"), [("0.tar", "*.tar"), ("train/data-0.arrow", "*/*.arrow")])
def test_folder_of_shards_says_how_to_name_them(tmp_path: Path, file: str, pattern: str) -> None:
    folder = tmp_path / "{data}"
    (folder / file).parent.mkdir(parents=True)
    (folder / file).touch()
    with pytest.raises(DataError) as error:
        find_sources([folder])
    assert str(error.value).endswith(f"no images; name its files by a pattern in quotes: 'FOLDER/{pattern}'")
