"""Any image file a user may have becomes the RGB that a viewer would show, or one clear line."""

import contextlib
import io
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from tagseg.data.images import decode
from tagseg.errors import DataError


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def colour(data: bytes) -> list[int]:
    """The colour of the first pixel."""
    first: list[int] = decode(data, "x")[0, 0].tolist()
    return first


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_common_formats(kind: str) -> None:
    pixels = decode(saved(Image.new("RGB", (9, 5), (250, 120, 10)), kind), "x")
    assert pixels.shape == (5, 9, 3)
    assert pixels.dtype == np.uint8
    assert pixels.flags.writeable
    assert np.abs(pixels.astype(int) - [250, 120, 10]).max() <= 4


def test_grey_fills_all_channels() -> None:
    assert colour(saved(Image.new("L", (2, 2), 77), "PNG")) == [77, 77, 77]
    assert colour(saved(Image.new("1", (2, 2), 1), "PNG")) == [255, 255, 255]


def test_transparency_lies_on_white() -> None:
    assert colour(saved(Image.new("RGBA", (2, 2), (0, 0, 0, 0)), "PNG")) == [255, 255, 255]
    assert colour(saved(Image.new("RGBA", (2, 2), (0, 0, 0, 128)), "PNG")) == pytest.approx([127] * 3, abs=1)
    assert colour(saved(Image.new("LA", (2, 2), (0, 0)), "PNG")) == [255, 255, 255]


def test_palette_with_and_without_transparency() -> None:
    palette = Image.new("P", (2, 2), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    assert colour(saved(palette, "PNG")) == [10, 20, 30]
    assert colour(saved(palette, "PNG", transparency=1)) == [255, 255, 255]


def test_cmyk() -> None:
    assert colour(saved(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")) == pytest.approx([255] * 3, abs=2)
    assert colour(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF")) == pytest.approx([255, 0, 0], abs=2)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize(("stored", "shown"), [(0, 0), (257, 1), (32896, 128), (65535, 255)])
def test_16_bits_scale_over_their_whole_range(kind: str, stored: int, shown: int) -> None:
    data = saved(Image.fromarray(np.full((2, 2), stored, np.uint16)), kind)
    assert colour(data) == [shown] * 3


def test_float_tiff() -> None:
    assert colour(saved(Image.fromarray(np.full((2, 2), 0.5, np.float32)), "TIFF")) == [128] * 3
    with pytest.raises(DataError, match=r"^scan\.tif: its values reach from -3 to -3.*save it as 8 bits$"):
        decode(saved(Image.fromarray(np.full((2, 2), -3, np.float32)), "TIFF"), "scan.tif")


def test_exif_rotation_is_applied() -> None:
    image = Image.new("RGB", (10, 6), "black")
    image.paste("white", (0, 0, 10, 1))  # the top row
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it 90 degrees clockwise
    pixels = decode(saved(image, "PNG", exif=exif), "x")
    assert pixels.shape == (10, 6, 3)
    assert pixels[:, -1].min() == 255
    assert pixels[:, 0].max() == 0


def test_a_sound_image_with_broken_exif_is_still_read() -> None:
    data = saved(Image.new("RGB", (4, 4), "white"), "PNG", exif=b"no header of EXIF")
    assert colour(data) == [255] * 3


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1)])
def test_one_pixel_wide(size: tuple[int, int]) -> None:
    assert decode(saved(Image.new("RGB", size), "PNG"), "x").shape == (size[1], size[0], 3)
    reduced = decode(saved(Image.new("RGB", size), "PNG"), "x", max_side=8)
    assert max(reduced.shape[:2]) <= 8
    assert min(reduced.shape[:2]) == 1


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_max_side_keeps_the_proportions_and_never_enlarges(kind: str) -> None:
    data = saved(Image.new("RGB", (600, 300), (10, 200, 90)), kind)
    reduced = decode(data, "x", max_side=100)
    assert reduced.shape == (50, 100, 3)
    assert np.abs(reduced.astype(int) - [10, 200, 90]).max() <= 4
    assert decode(data, "x", max_side=1000).shape == (300, 600, 3)


def test_a_hundred_megapixels_are_read_without_a_warning() -> None:
    data = saved(Image.new("L", (10_000, 10_000), 9), "JPEG", quality=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(data, "x", max_side=200).shape == (200, 200, 3)


def test_a_bomb_is_refused() -> None:
    data = saved(Image.new("1", (20_000, 20_000)), "PNG")
    with pytest.raises(DataError, match=r"^huge\.png: has more than 178 megapixels; reduce"):
        decode(data, "huge.png")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "is damaged"),
        (lambda _: b"", "is not an image"),
        (lambda _: b"<html>404</html>", "is not an image"),
    ],
)
def test_unreadable_files_are_one_line_that_names_the_file(damage: Callable[[bytes], bytes], message: str) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    with pytest.raises(DataError, match=rf"^a/b\.jpg: {message}.*(replace|remove)") as caught:
        decode(damage(saved(noise, "JPEG")), "a/b.jpg")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"]), data=st.data())
def test_damaged_bytes_never_raise_anything_else(kind: str, data: st.DataObject) -> None:
    content = bytearray(saved(Image.new("RGB", (9, 7), "red"), kind))
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        content[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        assert decode(bytes(content), "x").shape[2] == 3
