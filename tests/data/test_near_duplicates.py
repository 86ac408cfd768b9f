"""Copies of images are found, and other images are not."""

import io
from collections.abc import Callable
from importlib import resources

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from tagseg import _progress
from tagseg.data import near_duplicates, shapes
from tagseg.data.images import Pixels, decode, thumbnail
from tagseg.data.near_duplicates import Thumbnails, find_copies

PHOTOS = [
    Image.fromarray(decode(file.read_bytes(), file.name))
    for file in (resources.files("tagseg") / "photos").iterdir()
    if file.name.endswith(".jpg")
]


def thumbnails(*images: Image.Image | Pixels) -> Thumbnails:
    return np.stack([thumbnail(np.asarray(image)) for image in images])


def compressed(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=20)
    return Image.open(file)


@pytest.mark.parametrize(
    "change",
    [
        compressed,
        lambda image: image.resize((image.width // 3, image.height // 3)),
        lambda image: ImageEnhance.Brightness(image).enhance(0.7),
        lambda image: image.convert("L").convert("RGB"),
        lambda image: image.crop((3, 3, image.width - 3, image.height - 3)),
    ],
    ids=["compressed", "scaled", "darker", "gray", "cropped"],
)
def test_changed_copies_are_found(change: Callable[[Image.Image], Image.Image]) -> None:
    copies = thumbnails(*map(change, PHOTOS))
    assert find_copies(copies, thumbnails(*PHOTOS)) == {0: 0, 1: 1, 2: 2}
    assert find_copies(np.concatenate([thumbnails(*PHOTOS), copies])) == {3: 0, 4: 1, 5: 2}


def test_other_images_are_not_copies() -> None:
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 255, 90, dtype=np.uint8)[:, None, None]
    scenes = shapes(80)
    images: list[Image.Image | Pixels] = [
        *PHOTOS,
        *(scenes.images.read(i) for i in range(len(scenes))),
        *(np.full((60, 90, 3), value, np.uint8) for value in (0, 0, 7, 255)),  # one color
        *(np.broadcast_to(ramp // part, (90, 90, 3)) for part in (1, 2, 3)),  # skies
        *(rng.integers(118, 122, (64, 64, 3), dtype=np.uint8) for _ in range(20)),  # noise
    ]
    assert find_copies(thumbnails(*images)) == {}


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    images = thumbnails(*PHOTOS, *PHOTOS, *map(compressed, PHOTOS))
    whole = find_copies(images), find_copies(images[3:], images[:3])
    monkeypatch.setattr(near_duplicates, "_BLOCK", 2)
    assert (find_copies(images), find_copies(images[3:], images[:3])) == whole
    assert find_copies(images[:0]) == find_copies(images[:0], images) == find_copies(images, images[:0]) == {}


def test_progress_counts_every_comparison(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(near_duplicates, "_BLOCK", 2)
    monkeypatch.setattr(_progress, "SECONDS_TO_FIRST_LINE", 0.0)
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", 0.0)
    find_copies(thumbnails(*PHOTOS), progress=True)
    assert "Comparing images, block 3/3" in capsys.readouterr().err
    find_copies(thumbnails(PHOTOS[0]), thumbnails(*PHOTOS), progress=True)
    assert "Comparing images, block 2/2" in capsys.readouterr().err
