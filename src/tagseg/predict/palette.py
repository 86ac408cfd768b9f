"""Colours of classes, and masks as indexed images."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagseg.predict.tiles import Mask


def palette(colours: int) -> NDArray[np.uint8]:
    """The first colours of PASCAL VOC's palette, [colours, 3]: black for the background, then all different.

    Three bits of a number at a time go to the highest free bits of red, green and blue: numbers that are near each
    other look different.
    """
    numbers = np.arange(colours)
    result = np.zeros((colours, 3), dtype=np.uint8)
    for level in range(8):
        for channel in range(3):
            result[:, channel] |= ((numbers >> (3 * level + channel) & 1) << (7 - level)).astype(np.uint8)
    return result


def to_indexed(mask: Mask) -> Image.Image:
    """A mask as an image whose pixel values are the classes; 16-bit masks, which no palette fits, become grey."""
    if mask.dtype != np.uint8:
        return Image.fromarray(mask)
    image = Image.fromarray(mask)
    image.putpalette(palette(256).tobytes())
    return image


def save_indexed(mask: Mask, path: str | Path) -> None:
    """Write a mask as PNG."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"{path}: a mask is saved as PNG, which keeps its values; name it {path.with_suffix('.png')}")
    to_indexed(mask).save(path)
