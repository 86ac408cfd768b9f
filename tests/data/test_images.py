"""Decoding of image files to 8-bit RGB."""

import contextlib
import io
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from tagseg.data import images, limits
from tagseg.data.images import decode, decode_large, to_rgb
from tagseg.errors import DataError


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def first_color(data: bytes) -> list[int]:
    """Color of the first pixel."""
    first: list[int] = decode(data, "x")[0, 0].tolist()
    return first


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_common_formats_are_decoded(kind: str) -> None:
    pixels = decode(encode(Image.new("RGB", (9, 5), (250, 120, 10)), kind), "x")
    assert pixels.shape == (5, 9, 3)
    assert pixels.dtype == np.uint8
    assert pixels.flags.writeable
    assert np.abs(pixels.astype(int) - [250, 120, 10]).max() <= 4


def test_gray_fills_all_channels() -> None:
    assert first_color(encode(Image.new("L", (2, 2), 77), "PNG")) == [77, 77, 77]
    assert first_color(encode(Image.new("1", (2, 2), 1), "PNG")) == [255, 255, 255]


def test_transparent_pixels_are_blended_with_white() -> None:
    assert first_color(encode(Image.new("RGBA", (2, 2), (0, 0, 0, 0)), "PNG")) == [255, 255, 255]
    assert first_color(encode(Image.new("RGBA", (2, 2), (0, 0, 0, 128)), "PNG")) == pytest.approx([127] * 3, abs=1)
    assert first_color(encode(Image.new("LA", (2, 2), (0, 0)), "PNG")) == [255, 255, 255]


def test_palette_is_decoded_with_and_without_transparency() -> None:
    palette = Image.new("P", (2, 2), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    assert first_color(encode(palette, "PNG")) == [10, 20, 30]
    assert first_color(encode(palette, "PNG", transparency=1)) == [255, 255, 255]


def test_cmyk_is_decoded() -> None:
    assert first_color(encode(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")) == pytest.approx([255] * 3, abs=2)
    assert first_color(encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF")) == pytest.approx([255, 0, 0], abs=2)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize(("stored", "decoded"), [(0, 0), (257, 1), (32896, 128), (65535, 255)])
def test_16_bit_values_are_scaled_to_8_bits(kind: str, stored: int, decoded: int) -> None:
    data = encode(Image.fromarray(np.full((2, 2), stored, np.uint16)), kind)
    assert first_color(data) == [decoded] * 3


def test_float_tiff_is_decoded() -> None:
    assert first_color(encode(Image.fromarray(np.full((2, 2), 0.5, np.float32)), "TIFF")) == [128] * 3
    with pytest.raises(DataError, match=r"^scan\.tif: its values reach from -3 to -3.*save it as 8 bits$"):
        decode(encode(Image.fromarray(np.full((2, 2), -3, np.float32)), "TIFF"), "scan.tif")


def test_exif_rotation_is_applied() -> None:
    image = Image.new("RGB", (10, 6), "black")
    image.paste("white", (0, 0, 10, 1))  # the top row
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    pixels = decode(encode(image, "PNG", exif=exif), "x")
    assert pixels.shape == (10, 6, 3)
    assert pixels[:, -1].min() == 255
    assert pixels[:, 0].max() == 0


def test_invalid_exif_is_ignored() -> None:
    data = encode(Image.new("RGB", (4, 4), "white"), "PNG", exif=b"no header of EXIF")
    assert first_color(data) == [255] * 3


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1)])
def test_images_one_pixel_wide_are_decoded(size: tuple[int, int]) -> None:
    assert decode(encode(Image.new("RGB", size), "PNG"), "x").shape == (size[1], size[0], 3)


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize(
    ("kind", "mode"),
    [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "I;16"), ("TIFF", "RGB")],
)
def test_very_large_images_are_reduced(kind: str, mode: str, orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = np.mgrid[:403, :598]
    values = np.stack([rows / 2, columns / 3, (rows + columns) / 5, 55 + rows / 3], 2).astype(np.uint8)
    image = Image.fromarray(values[..., 0].astype(np.uint16) * 257 if mode == "I;16" else values)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(image if mode == "I;16" else image.convert(mode), kind, exif=exif)
    expected = decode(data, "x")
    monkeypatch.setattr(images, "MAX_DECODED_PIXELS", 20_000)
    pixels, shape = decode_large(data, "x", min_side=30)
    assert shape == expected.shape[:2]
    assert pixels.shape[:2] == tuple(-(-side // 4) for side in shape)  # by 2 it would have 60,000 pixels
    reduced = np.asarray(Image.fromarray(expected).reduce(4)).astype(int)
    assert np.abs(pixels - reduced).max() <= 8  # the edges of a JPEG at reduced size, and alpha


@pytest.mark.parametrize(("max_pixels", "min_side"), [(30_000, 10), (20_000, 60)])
def test_images_are_only_reduced_as_far_as_they_are_seen(
    max_pixels: int, min_side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(Image.effect_noise((200, 150), 50), "PNG")
    monkeypatch.setattr(images, "MAX_DECODED_PIXELS", max_pixels)
    pixels, shape = decode_large(data, "x", min_side=min_side)
    assert shape == (150, 200)
    assert np.array_equal(pixels, decode(data, "x"))


def test_100_megapixels_are_decoded_without_a_warning() -> None:
    data = encode(Image.new("L", (10_000, 10_000), 9), "JPEG", quality=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_large(data, "x", min_side=200)[1] == (10_000, 10_000)


def test_decompression_bomb_is_an_error() -> None:
    data = encode(Image.new("1", (20_000, 20_000)), "PNG")
    with pytest.raises(
        DataError, match=r"^huge\.png: has more than 178 megapixels; .* set TAGSEG_MAX_MEGAPIXELS higher"
    ):
        decode(data, "huge.png")


@pytest.mark.parametrize("kind", ["EPS", "PPM", "PCX", "ICO", "TGA", "PDF"])
def test_other_formats_are_refused_whatever_their_name(kind: str) -> None:
    with pytest.raises(DataError, match=r"^a\.jpg: is not an image that can be read"):
        decode(encode(Image.new("RGB", (32, 32), "red"), kind), "a.jpg")


def test_large_images_are_decoded_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def counted(image: Image.Image) -> Image.Image:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return to_rgb(image)

    monkeypatch.setattr(images, "to_rgb", counted)
    monkeypatch.setattr(limits, "MAX_BYTES_IN_FLIGHT", 2 * 9 * 40 * 40)
    limits._budget.cache_clear()
    data = encode(Image.new("RGB", (40, 40)), "PNG")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: decode(data, "x"), range(16)))
    limits._budget.cache_clear()
    assert most == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "is damaged"),
        (lambda _: b"", "is not an image"),
        (lambda _: b"<html>404</html>", "is not an image"),
    ],
)
def test_unreadable_file_is_a_one_line_error_with_its_name(damage: Callable[[bytes], bytes], message: str) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    with pytest.raises(DataError, match=rf"^a/b\.jpg: {message}.*(replace|remove)") as caught:
        decode(damage(encode(noise, "JPEG")), "a/b.jpg")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"]), data=st.data())
def test_damaged_bytes_raise_only_data_errors(kind: str, data: st.DataObject) -> None:
    content = bytearray(encode(Image.new("RGB", (9, 7), "red"), kind))
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        content[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        assert decode(bytes(content), "x").shape[2] == 3


def test_avif_and_heic_are_decoded() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    image = Image.new("RGB", (64, 48), (200, 30, 30))
    avif, heic = io.BytesIO(), io.BytesIO()
    image.save(avif, "AVIF")
    pillow_heif.from_pillow(image).save(heic)
    for file in (avif, heic):
        pixels = decode(file.getvalue(), "photo")
        assert pixels.shape == (48, 64, 3)
        assert np.abs(pixels.astype(int) - (200, 30, 30)).max() <= 8


def test_heic_names_the_extra_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as if it were not installed
    with pytest.raises(DataError, match=r"phone.heic: is a HEIC image; install tagseg\[heif\] to read it"):
        decode(b"\0\0\0\x1cftypheic" + b"\0" * 40, "phone.heic")
