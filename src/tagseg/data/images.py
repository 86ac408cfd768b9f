"""Decode image files of any common format to 8-bit RGB, as an image viewer shows them."""

import hashlib
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from tagseg.data.limits import hold_memory
from tagseg.data.png_bands import has_png_bands, png_bands
from tagseg.errors import DataError, first_line

HEIF_SUFFIXES = frozenset({".heic", ".heif"})
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".png", ".webp", ".avif", ".tif", ".tiff", ".bmp", ".gif"}) | (
    HEIF_SUFFIXES if find_spec("pillow_heif") else frozenset()
)
THUMBNAIL_SIDE = 16
MAX_DECODED_PIXELS = 2**26  # of an image that is only seen in small, see `decode_large`
Pixels = NDArray[np.uint8]  # [H, W, 3]
# PIL knows more formats: some start other programs (EPS), most are rarely tried with damaged files.
_FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "TIFF", "BMP", "GIF", "HEIF")
MAX_MEGAPIXELS = "TAGSEG_MAX_MEGAPIXELS"  # in the environment: allows larger images
if _megapixels := os.environ.get(MAX_MEGAPIXELS, ""):
    # PIL refuses images of more than twice its limit.
    Image.MAX_IMAGE_PIXELS = int(_megapixels) * 10**6 // 2 if _megapixels.isdecimal() else Image.MAX_IMAGE_PIXELS
_BAND_ROWS = 64
_SIDEWAYS = (5, 6, 7, 8)  # orientations that swap width and height
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Facts about one image, for `check`.

    Attributes:
        width: Width after EXIF rotation.
        height: Height after EXIF rotation.
        mode: PIL's name of the mode in which the file stores its pixels, such as RGB, L, P or CMYK.
        digest: Hash of the file's content: equal for equal files.
        thumbnail: Small gray copy of the image: similar for similar images.
    """

    width: int
    height: int
    mode: str
    digest: bytes
    thumbnail: NDArray[np.uint8]


def image_info(data: bytes, file_name: str) -> ImageInfo:
    """Decode an image file and return facts about it.

    Args:
        data: Content of the file.
        file_name: Name of the file, for error messages.
    """
    with _decoding(data, file_name) as image, hold_memory(_bytes_to_decode(image)):
        mode = image.mode
        rgb = to_rgb(apply_exif_rotation(image))
        return ImageInfo(*rgb.size, mode, hashlib.blake2b(data, digest_size=16).digest(), _thumbnail(rgb))


def thumbnail(pixels: Pixels) -> NDArray[np.uint8]:
    """Gray thumbnail, [THUMBNAIL_SIDE, THUMBNAIL_SIDE]; it keeps nothing of the aspect ratio."""
    return _thumbnail(Image.fromarray(pixels))


def strip_image_suffix(name: PurePosixPath) -> PurePosixPath:
    """Remove .jpg and the like from an image's name; other dots belong to the name."""
    return name.with_suffix("") if name.suffix.lower() in IMAGE_SUFFIXES else name


def decode(data: bytes, file_name: str) -> Pixels:
    """Decode an image to RGB, [H, W, 3].

    EXIF rotation is applied, transparent pixels are blended with white, 16-bit values are scaled to 8 bits, and only
    the first frame of an animation is read. Images of up to 178 megapixels (twice `PIL.Image.MAX_IMAGE_PIXELS`) are
    accepted; the environment variable TAGSEG_MAX_MEGAPIXELS sets another limit. Threads that decode large images wait
    for each other, see `tagseg.data.limits`.

    Args:
        data: Content of the file.
        file_name: Name of the file, for error messages.
    """
    with _decoding(data, file_name) as image, hold_memory(_bytes_to_decode(image)):
        return np.array(to_rgb(apply_exif_rotation(image)))


def decode_large(data: bytes, file_name: str, *, min_side: int) -> tuple[Pixels, tuple[int, int]]:
    """Decode an image that is only seen in small: a very large one is reduced, and never held twice.

    An image of more than 67 megapixels is reduced by 2, 4, 8 and so on, until it has no more, but not below twice
    `min_side`. A JPEG is then decoded at reduced size, and a PNG in bands. Other images are decoded as by `decode`.

    Args:
        data: Content of the file.
        file_name: Name of the file, for error messages.
        min_side: Longest side at which the image is seen.

    Returns:
        RGB, [h, w, 3], and the height and width of the image itself.
    """
    with _decoding(data, file_name) as image:
        width, height = image.size
        factor = 1
        while width * height > MAX_DECODED_PIXELS * factor**2 and max(width, height) >= 4 * factor * min_side:
            factor *= 2
        if factor > 1:
            image.draft(None, (width // factor, height // factor))
            factor //= round(max(width, height) / max(image.size))  # by which a JPEG is decoded reduced
            with hold_memory(_bytes_to_decode(image)):
                if has_png_bands(data):  # PIL decodes all of a PNG even for its orientation, which each band has
                    bands, orientation = partial(png_bands, data), _orientation(next(png_bands(data, 1)))
                else:
                    image.load()
                    bands, orientation = partial(_bands, image), _orientation(image)
                reduced = _reduce(image.size, bands(_BAND_ROWS * factor), factor)
            reduced.getexif()[ExifTags.Base.Orientation] = orientation
            pixels = np.array(apply_exif_rotation(reduced))
            return pixels, (width, height) if orientation in _SIDEWAYS else (height, width)
    pixels = decode(data, file_name)
    return pixels, (pixels.shape[0], pixels.shape[1])


@contextmanager
def _decoding(data: bytes, file_name: str) -> Iterator[Image.Image]:
    """Open an image whose pixels are decoded in the block; its errors name the file."""
    try:
        yield open_image(data)
    except DataError as error:
        raise DataError(f"{file_name}: {error.problem}", error.advice) from error
    except Image.DecompressionBombError as error:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
        raise DataError(
            f"{file_name}: has more than {limit} megapixels", f"reduce the image, or set {MAX_MEGAPIXELS} higher"
        ) from error
    except UnidentifiedImageError as error:
        raise DataError(
            f"{file_name}: is not an image that can be read ({len(data)} bytes)",
            "convert it to JPEG or PNG, or remove it",
        ) from error
    except MemoryError as error:
        raise DataError(f"{file_name}: does not fit into memory", "reduce the image or remove it") from error
    except Exception as error:  # PIL's decoders raise errors of many types on damaged files.
        raise DataError(f"{file_name}: is damaged ({first_line(error)})", "replace the file or remove it") from error


def image_size(data: bytes, file_name: str) -> tuple[int, int]:
    """Width and height of an image as `decode` returns it, from the headers of its file.

    Args:
        data: Content of the file.
        file_name: Name of the file, for error messages.
    """
    with _decoding(data, file_name) as image:
        return (image.height, image.width) if _orientation(image) in _SIDEWAYS else (image.width, image.height)


def apply_exif_rotation(image: Image.Image) -> Image.Image:
    """Rotate and flip an image, in place, as its EXIF orientation says; an invalid EXIF block is ignored."""
    image.load()
    # The pixels are valid: a damaged EXIF block, which fails in many ways, must not lose them.
    with suppress(Exception):
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _orientation(image: Image.Image) -> int:
    """Orientation that an image's EXIF block tells; 1, which is upright, if the block is invalid."""
    with suppress(Exception):
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    return 1


def _bands(image: Image.Image, num_rows: int) -> Iterator[Image.Image]:
    """Bands of rows of an image, from top to bottom."""
    if image.mode.startswith(("I", "F")):
        image = to_rgb(image)  # how it is scaled depends on all of its values
    for top in range(0, image.height, num_rows):
        yield image.crop((0, top, image.width, min(image.height, top + num_rows)))


def _reduce(size: tuple[int, int], bands: Iterator[Image.Image], factor: int) -> Image.Image:
    """Convert the bands of an image to RGB and reduce them by a factor: an image and a copy may not fit into memory."""
    reduced = Image.new("RGB", (-(-size[0] // factor), -(-size[1] // factor)))
    for number, band in enumerate(bands):
        reduced.paste(to_rgb(band).reduce(factor), (0, number * _BAND_ROWS))
    return reduced


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to 8-bit RGB, with transparent pixels blended with white."""
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_to_8_bit(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def open_image(data: bytes, formats: Sequence[str] = _FORMATS) -> Image.Image:
    """Open an image of one of these formats without decoding its pixels.

    Args:
        data: Content of the file.
        formats: PIL's names of formats; one that this PIL does not have is left out.
    """
    Image.init()  # registers the formats once
    with warnings.catch_warnings():
        # PIL warns between one and two times its limit, a range that is accepted here.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            return Image.open(io.BytesIO(data), formats=[name for name in formats if name in Image.OPEN])
        except UnidentifiedImageError:
            if "HEIF" not in formats or data[4:8] != b"ftyp" or data[8:12] not in _HEIF_BRANDS:
                raise
            _register_heif()
            return Image.open(io.BytesIO(data), formats=["HEIF"])


def _register_heif() -> None:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise DataError("is a HEIC image", "install tagseg[heif] to read it, or convert it to JPEG") from None
    register_heif_opener()


def _thumbnail(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image.convert("L").resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX))


def _bytes_to_decode(image: Image.Image) -> int:
    """Memory that decoding takes at its peak: PIL's image of at most 4 bytes a pixel, copies of it, and the array."""
    in_double_precision = image.mode.startswith(("I", "F"))
    per_pixel = 28 if in_double_precision else 20 if image.has_transparency_data else 9
    return image.width * image.height * per_pixel


def _to_8_bit(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    # The scale depends on the range of the file format, not on the image's values: images stay comparable.
    floats = values.astype(np.float64)
    low, high = float(floats.min()), float(floats.max())
    if np.issubdtype(values.dtype, np.integer):
        factor = 255 / 65535
        in_range = low >= 0 and high <= 65535
    else:
        factor = 255.0 if high <= 1 else 1.0
        in_range = low >= 0 and high <= 255
    if not in_range:
        raise DataError(
            f"its values reach from {low:g} to {high:g}, which is neither 8 nor 16 bits", "save it as 8 bits"
        )
    return np.asarray(floats * factor + 0.5).astype(np.uint8)
