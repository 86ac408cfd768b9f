"""Large PNGs that are decoded in bands."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tagseg.data.png_bands import has_png_bands, png_bands
from tagseg.errors import DataError


def encode(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()


def photo(width: int = 61, height: int = 47) -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (height, width, 4), np.uint8)
    values[: height // 2] = np.arange(width, dtype=np.uint8)[:, None] * [1, 2, 3, 1]  # smooth, for the other filters
    return Image.fromarray(values)


@pytest.mark.parametrize("num_rows", [1, 5, 47, 100])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P"])
def test_bands_are_the_rows_of_the_image(mode: str, num_rows: int) -> None:
    data = encode(photo().convert(mode))
    assert has_png_bands(data)
    bands = list(png_bands(data, num_rows))
    whole = Image.open(io.BytesIO(data))
    assert {band.mode for band in bands} == {whole.mode}
    assert all(band.height == num_rows for band in bands[:-1])
    assert np.array_equal(
        np.concatenate([np.asarray(band.convert("RGBA")) for band in bands]), np.asarray(whole.convert("RGBA"))
    )


def test_every_filter_is_decoded() -> None:
    """Row k has the filter k % 5; PIL decodes the whole image as well."""
    rows = np.random.default_rng(1).integers(0, 256, (20, 3 * 33), np.uint8)
    contents = zlib.compress(b"".join(bytes([number % 5]) + row.tobytes() for number, row in enumerate(rows)))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 33, 20, 8, 2, 0, 0, 0))]
    chunks += [(b"IDAT", contents[:300]), (b"IDAT", b""), (b"IDAT", contents[300:]), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4) for kind, body in chunks
    )
    bands = [np.asarray(band) for band in png_bands(data, 3)]
    assert np.array_equal(np.concatenate(bands), np.asarray(Image.open(io.BytesIO(data))))


def test_transparent_color_and_orientation_are_kept() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    band = next(png_bands(encode(photo().convert("RGB"), transparency=(1, 2, 3), exif=exif), 4))
    assert band.info["transparency"] == (1, 2, 3)
    assert band.getexif()[0x0112] == 6


@pytest.mark.parametrize("mode", ["1", "I;16"])
def test_other_depths_and_formats_have_no_bands(mode: str) -> None:
    assert not has_png_bands(encode(Image.new(mode, (9, 9))))
    assert not has_png_bands(b"GIF89a")
    assert not has_png_bands(encode(photo())[:10])


def test_damaged_files_are_refused() -> None:
    data = encode(photo())
    with pytest.raises(DataError, match="wrong checksum"):
        list(png_bands(data[: len(data) // 2], 4))
    with pytest.raises(DataError, match="wrong checksum"):
        list(png_bands(data[:3000] + b"xx" + data[3002:], 4))
    end = data.index(b"IDAT") - 4
    with pytest.raises(DataError, match="is truncated"):
        list(png_bands(data[:end], 4))
