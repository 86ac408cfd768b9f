"""Bytes of any common image file to plain 8-bit RGB, the way a person would see it."""

import io
import struct
import warnings
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from tagseg.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"})

# What PIL's decoders raise on damaged bytes, besides UnidentifiedImageError (an OSError) for those they do not know.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error)


def without_ending(name: PurePosixPath) -> PurePosixPath:
    """An image's name without .jpg and the like; other dots belong to the name."""
    return name.with_suffix("") if name.suffix.lower() in SUFFIXES else name


def decode(data: bytes, where: str, *, max_side: int | None = None) -> NDArray[np.uint8]:
    """Decode an image to RGB, [H, W, 3].

    EXIF rotation is applied; transparency lies on white; 16-bit values are scaled to 8 bits; of several frames the
    first counts. Up to PIL's own limit (twice `PIL.Image.MAX_IMAGE_PIXELS`, 179 megapixels) any size is read.

    Args:
        data: the file's content.
        where: the file's name, for the error.
        max_side: reduce the image until no side is longer; a JPEG is then decoded at reduced size, which is faster.
    """
    return decode_with_mode(data, where, max_side=max_side)[0]


def decode_with_mode(data: bytes, where: str, *, max_side: int | None = None) -> tuple[NDArray[np.uint8], str]:
    """Decode as `decode` does, and name the mode in which the file stores its pixels (PIL's names)."""
    try:
        image = _open(data)
        mode = image.mode
        if max_side is not None:
            image.draft(None, _fit(image.size, max_side))
        image = to_rgb(upright(image))
        if max_side is not None and max(image.size) > max_side:
            image = image.resize(_fit(image.size, max_side), Image.Resampling.BICUBIC, reducing_gap=3.0)
        return np.array(image), mode
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except Image.DecompressionBombError as error:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
        raise DataError(
            f"{where}: has more than {limit} megapixels; reduce the image, or raise PIL.Image.MAX_IMAGE_PIXELS"
        ) from error
    except UnidentifiedImageError as error:
        raise DataError(
            f"{where}: is not an image that can be read ({len(data)} bytes); convert it to JPEG or PNG, or remove it"
        ) from error
    except _DAMAGE as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise DataError(f"{where}: is damaged ({reason[0]}); replace the file or remove it") from error


def _open(data: bytes) -> Image.Image:
    with warnings.catch_warnings():
        # Between one and two times PIL's limit it only warns: those sizes are wanted here.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(data))


def upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except _DAMAGE:
        return image  # the pixels are sound, only the notes of the camera are not


def _fit(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    scale = min(1.0, max_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_to_8_bit(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image.convert("RGB")


def _to_8_bit(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Scale by the range that the file can hold, not by the values it happens to hold: images stay comparable."""
    floats = values.astype(np.float64)
    low, high = float(floats.min()), float(floats.max())
    if np.issubdtype(values.dtype, np.integer):
        factor = 255 / 65535
        fits = low >= 0 and high <= 65535
    else:
        factor = 255.0 if high <= 1 else 1.0
        fits = low >= 0 and high <= 255
    if not fits:
        raise DataError(f"its values reach from {low:g} to {high:g}, which is neither 8 nor 16 bits; save it as 8 bits")
    return np.asarray(floats * factor + 0.5).astype(np.uint8)
