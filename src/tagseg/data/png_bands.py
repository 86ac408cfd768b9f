"""Decode a large PNG a band of rows at a time: PIL decodes whole images only, at 4 bytes a pixel.

Each band is packed as a PNG of its own, after the last row of the previous band, to which its filters refer; PIL
decodes that.
"""

import io
import struct
import zlib
from collections.abc import Iterator

from PIL import Image

from tagseg.errors import DataError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by the color type
_KEPT = (b"PLTE", b"tRNS", b"eXIf", b"tEXt", b"zTXt", b"iTXt")  # chunks of each band: colors and orientation
_HEADER = struct.Struct(">IIBBBBB")


def has_png_bands(data: bytes) -> bool:
    """Whether a file is a PNG that `png_bands` can decode: of 8 bits a channel, and not interlaced."""
    if not data.startswith(_SIGNATURE) or data[12:16] != b"IHDR":
        return False
    _, _, depth, color, _, _, interlaced = _HEADER.unpack(data[16:29])
    return depth == 8 and color in _CHANNELS and not interlaced


def png_bands(data: bytes, num_rows: int) -> Iterator[Image.Image]:
    """Yield the bands of an image from top to bottom, in its mode.

    Args:
        data: Content of a file that `has_png_bands`.
        num_rows: Number of rows of each band but the last.
    """
    width, height, depth, color, *methods = _HEADER.unpack(data[16:29])
    row_bytes = 1 + width * _CHANNELS[color]  # the first byte of a row is its filter
    kept = b"".join(_chunk(kind, body) for kind, body in _chunks(data) if kind in _KEPT)
    contents = _Contents(data)
    row_before = b""
    for top in range(0, height, num_rows):
        rows = contents.read(min(num_rows, height - top) * row_bytes)
        header = _HEADER.pack(width, (len(row_before) + len(rows)) // row_bytes, depth, color, *methods)
        packed = zlib.compress(row_before + rows, level=0)
        parts = (_chunk(b"IHDR", header), kept, _chunk(b"IDAT", packed), _chunk(b"IEND", b""))
        image = Image.open(io.BytesIO(_SIGNATURE + b"".join(parts)), formats=["PNG"])
        first = 1 if row_before else 0
        row_before = b"\0" + image.crop((0, image.height - 1, width, image.height)).tobytes()
        yield image.crop((0, first, width, image.height))


class _Contents:
    """Content of the IDAT chunks, decompressed as it is read."""

    def __init__(self, data: bytes) -> None:
        self._packed = (body for kind, body in _chunks(data) if kind == b"IDAT")
        self._decompressor = zlib.decompressobj()
        self._waiting: bytes | memoryview = b""

    def read(self, size: int) -> bytes:
        """Read as many bytes."""
        parts = []
        while size:
            if not self._waiting:
                packed = next(self._packed, None)
                if packed is None:
                    raise DataError("is truncated", "replace the file or remove it")
                self._waiting = packed
            part = self._decompressor.decompress(self._waiting, size)
            self._waiting = self._decompressor.unconsumed_tail
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Type and content of each chunk."""
    view, start = memoryview(data), len(_SIGNATURE)
    while start + 8 <= len(data):
        length, kind = int.from_bytes(data[start : start + 4]), data[start + 4 : start + 8]
        end = start + 8 + length
        if zlib.crc32(view[start + 4 : end]).to_bytes(4) != data[end : end + 4]:
            raise DataError("is damaged (wrong checksum)", "replace the file or remove it")
        yield kind, view[start + 8 : end]
        start = end + 4


def _chunk(kind: bytes, body: bytes | memoryview) -> bytes:
    return b"".join((len(body).to_bytes(4), kind, body, zlib.crc32(body, zlib.crc32(kind)).to_bytes(4)))
