"""Images inside the page: small copies, painted with their classes, as JPEG in the page's own text."""

import base64
import io
from math import sqrt
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagseg.data.images import Pixels
from tagseg.predict.overlay import blend
from tagseg.report.stages import Labels

_LONGEST, _SHORTEST = 320, 64
_ENLARGED = 192
_BUDGET = 1_800_000  # bytes for all images, which the page's base64 makes 2.4 MB of
_BYTES_PER_PIXEL = 0.35  # of a JPEG with much detail
_LEFT_OF_IGNORED = 0.3

_Value = TypeVar("_Value", bound=np.generic)


def side_for(images: int) -> int:
    """The longer side with which so many images fit into one page."""
    return max(_SHORTEST, min(_LONGEST, int(sqrt(_BUDGET / _BYTES_PER_PIXEL / max(1, images)))))


def small_copy(pixels: Pixels, side: int) -> Pixels:
    """An image with its longer side reduced to `side`; a tiny one is enlarged so that outlines stay thin."""
    image = Image.fromarray(pixels)
    longest = max(image.size)
    if longest < _ENLARGED <= side:
        factor = -(-_ENLARGED // longest)
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    image.thumbnail((side, side))
    return np.asarray(image)


def paint(image: Pixels, labels: Labels, ignored: NDArray[np.bool_] | None = None) -> Pixels:
    """The image with its classes in colour and its ignored pixels grey and dimmed.

    Args:
        image: [H, W, 3].
        labels: 0 for the background, k for the k-th class; of any size, resized to the image.
        ignored: where no class is known, of the labels' size.
    """
    size = image.shape[:2]
    if ignored is None:
        return blend(image, _resized(labels, size).astype(np.uint16))
    unknown = _resized(ignored, size)
    painted = blend(image, _resized(np.where(ignored, 0, labels), size).astype(np.uint16))
    grey = image.astype(np.float32).mean(2, keepdims=True)
    return np.where(unknown[..., None], _LEFT_OF_IGNORED * grey, painted).astype(np.uint8)


def as_jpeg(image: Pixels) -> str:
    """An image as a data URI."""
    file = io.BytesIO()
    # Colours at full resolution: a class's outline is a change of colour.
    Image.fromarray(image).save(file, "JPEG", quality=80, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def colours(classes: int) -> list[str]:
    """The CSS colour of the background and each class, as `paint` shows it over a middle grey."""
    grey: Pixels = np.full((1, 1, 3), 128, dtype=np.uint8)
    found = [blend(grey, np.array([[value]], dtype=np.uint16))[0, 0] for value in range(classes + 1)]
    return ["#" + "".join(f"{part:02x}" for part in colour) for colour in found]


def _resized(values: NDArray[_Value], size: tuple[int, ...]) -> NDArray[_Value]:
    """The nearest value of each pixel of another size."""
    rows, columns = (np.arange(new) * old // new for new, old in zip(size, values.shape, strict=True))
    resized: NDArray[_Value] = values[rows[:, None], columns]
    return resized
