"""A mask laid over its image, with the classes' names below, for eyes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagseg.data.images import Pixels
from tagseg.predict.palette import palette
from tagseg.predict.tiles import Mask

_OPACITY = 0.6
_SHADE = 0.8  # what is left of the background's light, so that the classes stand out
_READABLE_SIDE = 384
_LONGEST_SIDE = 2048
_PAPER, _INK = (255, 255, 255), (33, 37, 41)


def blend(image: Pixels, mask: Mask) -> Pixels:
    """The image with every class in its colour and a bright line around it, [H, W, 3]."""
    colours = _bright_palette(int(mask.max()) + 1).astype(np.float32)
    grey = image.astype(np.float32).mean(2, keepdims=True)  # a class keeps the hue of its legend, whatever is below
    fill = np.where(mask[..., None] > 0, (1 - _OPACITY) * grey + _OPACITY * colours[mask], _SHADE * image)
    edges = _edges(mask, thickness=max(1, round(min(mask.shape) / 250)))
    fill[edges] = 0.25 * fill[edges] + 0.75 * 255
    return (fill + 0.5).astype(np.uint8)


def reduce(image: Pixels, mask: Mask) -> tuple[Pixels, Mask]:
    """An image and its mask at a size that screens show; most are small enough already."""
    factor = _LONGEST_SIDE / max(mask.shape)
    if factor >= 1:
        return image, mask
    size = (max(1, round(mask.shape[1] * factor)), max(1, round(mask.shape[0] * factor)))
    small = Image.fromarray(image).resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.array(small), np.array(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))


def with_legend(blended: Pixels, entries: Sequence[tuple[int, str]]) -> Image.Image:
    """An image with a legend below it: a coloured square and a text for each class.

    A small image is enlarged until its legend can be read.

    Args:
        blended: the blended image, [H, W, 3].
        entries: mask value and text of each class; none says that there is no class.
    """
    image = Image.fromarray(blended)
    factor = -(-_READABLE_SIDE // max(image.size))
    if factor > 1:
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    width = max(image.width, _READABLE_SIDE // 2)
    text = max(14, round(max(image.size) / 32))
    font = ImageFont.load_default(text)
    pad, row = text * 3 // 4, text * 7 // 4
    swatch = text
    texts = [_fit(words, font, width - 3 * pad - swatch) for _, words in entries] or ["no class found"]
    places, left, line = [], pad, 0
    for words in texts:
        needed = (swatch + pad // 2 if entries else 0) + round(font.getlength(words)) + 2 * pad
        if left > pad and left + needed - pad > width:
            left, line = pad, line + 1
        places.append((left, line))
        left += needed
    canvas = Image.new("RGB", (width, image.height + pad + (line + 1) * row), _PAPER)
    canvas.paste(image, ((width - image.width) // 2, 0))
    draw = ImageDraw.Draw(canvas)
    colours = _bright_palette(max((value for value, _ in entries), default=0) + 1)
    for index, (words, (x, number)) in enumerate(zip(texts, places, strict=True)):
        middle = image.height + pad // 2 + number * row + row // 2
        if entries:
            box = (x, middle - swatch // 2, x + swatch, middle + swatch // 2)
            draw.rounded_rectangle(box, radius=swatch // 5, fill=tuple(colours[entries[index][0]].tolist()))
            x += swatch + pad // 2
        draw.text((x, middle), words, fill=_INK, font=font, anchor="lm")
    return canvas


def _bright_palette(colours: int) -> NDArray[np.uint8]:
    """The masks' palette, brighter: its dark colours suit a mask on black but would hide in a photo."""
    return np.asarray(255 * np.sqrt(palette(colours) / 255) + 0.5).astype(np.uint8)


def _edges(mask: Mask, *, thickness: int) -> NDArray[np.bool_]:
    """The pixels within `thickness` of another class, on the side of the higher class."""
    edges = np.zeros(mask.shape, dtype=bool)
    for step in range(1, thickness + 1):
        edges[step:] |= mask[step:] > mask[:-step]
        edges[:-step] |= mask[:-step] > mask[step:]
        edges[:, step:] |= mask[:, step:] > mask[:, :-step]
        edges[:, :-step] |= mask[:, :-step] > mask[:, step:]
    return edges


def _fit(words: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """Words that are too long for a line lose their end."""
    if font.getlength(words) <= width:
        return words
    while len(words) > 1 and font.getlength(words + "…") > width:
        words = words[:-1]
    return words + "…"
