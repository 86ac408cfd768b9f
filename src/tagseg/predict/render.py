"""Rendering: palette, indexed mask images, overlays with a legend."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagseg.data.images import Pixels
from tagseg.errors import ConfigError
from tagseg.models.serialization import write_atomically
from tagseg.predict.resize import ClassMask, resize_image, working_shape

_OPACITY = 0.6
_BACKGROUND_BRIGHTNESS = 0.8  # darkened, so that the classes stand out
_MIN_LEGEND_SIDE = 384
_MAX_SIDE = 2048
_LEGEND_BACKGROUND, _LEGEND_TEXT = (255, 255, 255), (33, 37, 41)


def palette(num_colors: int) -> NDArray[np.uint8]:
    """First colors of PASCAL VOC's palette, [N, 3]: black for the background, then all different.

    Three bits of an index at a time go to the highest free bits of red, green and blue, so that neighboring indices
    look different.
    """
    indices = np.arange(num_colors)
    result = np.zeros((num_colors, 3), dtype=np.uint8)
    for level in range(8):
        for channel in range(3):
            result[:, channel] |= ((indices >> (3 * level + channel) & 1) << (7 - level)).astype(np.uint8)
    return result


def overlay_palette(num_colors: int) -> NDArray[np.uint8]:
    """Colors of overlays, [N, 3]: the palette, brightened, as its dark colors would be hard to see in a photo."""
    return np.asarray(255 * np.sqrt(palette(num_colors) / 255) + 0.5).astype(np.uint8)


def mask_image(mask: ClassMask) -> Image.Image:
    """Mask as an indexed image; 16-bit masks, which no palette fits, become gray."""
    if mask.dtype != np.uint8:
        return Image.fromarray(mask)
    image = Image.fromarray(mask)
    image.putpalette(palette(256).tobytes())
    return image


def save_mask(mask: ClassMask, path: str | Path) -> None:
    """Write a mask as PNG."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ConfigError(f"{path}: masks are saved as PNG, which keeps their values", "give the file the suffix .png")
    write_atomically(path, lambda part: mask_image(mask).save(part, "PNG"))


def blend(image: Pixels, mask: ClassMask) -> Pixels:
    """Color every class of the mask over the image, with a bright outline, [H, W, 3]."""
    colors = overlay_palette(int(mask.max()) + 1).astype(np.float32)
    gray = image.astype(np.float32).mean(2, keepdims=True)  # a class keeps the hue of its legend entry
    fill = np.where(
        mask[..., None] > 0, (1 - _OPACITY) * gray + _OPACITY * colors[mask], _BACKGROUND_BRIGHTNESS * image
    )
    edges = _edges(mask, thickness=max(1, round(min(mask.shape) / 250)))
    fill[edges] = 0.25 * fill[edges] + 0.75 * 255
    return (fill + 0.5).astype(np.uint8)


def shrink_for_display(image: Pixels, mask: ClassMask) -> tuple[Pixels, ClassMask]:
    """Reduce an image and its mask to a size that screens show."""
    if max(mask.shape) <= _MAX_SIDE:
        return image, mask
    height, width = working_shape(mask.shape, _MAX_SIDE)
    small_mask = Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)
    return resize_image(image, (height, width)), np.array(small_mask)


def add_legend(blended: Pixels, entries: Sequence[tuple[int, str]]) -> Image.Image:
    """Add a legend below an image: a colored square and a text for each class.

    Small images are enlarged until the legend is readable.

    Args:
        blended: Image with the mask over it, [H, W, 3].
        entries: Mask value and text of each class; without any the legend reads "no class found".
    """
    image = Image.fromarray(blended)
    factor = -(-_MIN_LEGEND_SIDE // max(image.size))
    if factor > 1:
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    width = max(image.width, _MIN_LEGEND_SIDE // 2)
    font_size = max(14, round(max(image.size) / 32))
    font = ImageFont.load_default(font_size)
    pad, row_height, swatch = font_size * 3 // 4, font_size * 7 // 4, font_size
    texts = [_truncate(text, font, width - 3 * pad - swatch) for _, text in entries] or ["no class found"]
    positions, left, row = [], pad, 0
    for text in texts:
        entry_width = (swatch + pad // 2 if entries else 0) + round(font.getlength(text)) + 2 * pad
        if left > pad and left + entry_width - pad > width:
            left, row = pad, row + 1
        positions.append((left, row))
        left += entry_width
    canvas = Image.new("RGB", (width, image.height + pad + (row + 1) * row_height), _LEGEND_BACKGROUND)
    canvas.paste(image, ((width - image.width) // 2, 0))
    draw = ImageDraw.Draw(canvas)
    colors = overlay_palette(max((value for value, _ in entries), default=0) + 1)
    for index, (text, (x, row)) in enumerate(zip(texts, positions, strict=True)):
        middle = image.height + pad // 2 + row * row_height + row_height // 2
        if entries:
            box = (x, middle - swatch // 2, x + swatch, middle + swatch // 2)
            draw.rounded_rectangle(box, radius=swatch // 5, fill=tuple(colors[entries[index][0]].tolist()))
            x += swatch + pad // 2
        draw.text((x, middle), text, fill=_LEGEND_TEXT, font=font, anchor="lm")
    return canvas


def _edges(mask: ClassMask, *, thickness: int) -> NDArray[np.bool_]:
    """Pixels within `thickness` of another class, on the side of the higher class."""
    edges = np.zeros(mask.shape, dtype=bool)
    for step in range(1, thickness + 1):
        edges[step:] |= mask[step:] > mask[:-step]
        edges[:-step] |= mask[:-step] > mask[step:]
        edges[:, step:] |= mask[:, step:] > mask[:, :-step]
        edges[:, :-step] |= mask[:, :-step] > mask[:, step:]
    return edges


def _truncate(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """Truncate a text that is too long for a line."""
    if font.getlength(text) <= width:
        return text
    while len(text) > 1 and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
