"""Rendering: palettes, indexed mask images, overlays and legends."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagseg._files import write_atomically
from tagseg.data.images import Pixels
from tagseg.errors import ConfigError
from tagseg.predict.resize import ClassMask

DEFAULT_ALPHA = 0.6
_DARKENING = 0.2  # of the background, so that the classes stand out
_BAND_PIXELS = 2**18  # that are blended at a time
_MANY_COLORS, _FEW_COLORS = 2000, 255  # the first are the same; many take tenths of a second to choose
_LEGEND_BACKGROUND, _LEGEND_TEXT = (255, 255, 255), (33, 37, 41)
_MIN_TEXT_SIZE, _MIN_LEGEND_ROWS, _MAX_LEGEND_TEXT = 14, 12, 40

# Ottosson's OKLab, in which the distance of two colors is how different they look: linear RGB to cones to Lab.
_CONES = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
_LAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip
# Linear RGB as people with the two common kinds of color blindness see it (Machado et al. 2009).
DEUTERANOPIA = np.array([
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
])  # fmt: skip
PROTANOPIA = np.array([
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
])  # fmt: skip
_COLOR_BLIND_WEIGHT = 1.5  # they see fewer colors, which can only be less far apart
_LIGHTNESS, _MIN_CHROMA, _CHANNEL_STEP = (0.5, 0.92), 0.12, 15


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
    """Colors of overlays, [N, 3]: black for the background, then colors that are easy to tell apart on photos.

    Each color is the one that differs most from all before it, also to people with red-green color blindness. None is
    dark or gray. After 2,000 classes they repeat.
    """
    colors = _distinct_colors(_FEW_COLORS if num_colors <= 1 + _FEW_COLORS else _MANY_COLORS)
    return np.concatenate([np.zeros((1, 3), np.uint8), colors[np.arange(num_colors - 1) % len(colors)]])


def perceived(colors: NDArray[np.uint8], vision: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Convert sRGB colors to OKLab, [N, 3].

    Args:
        colors: sRGB, [N, 3].
        vision: Simulation of a color blindness in linear RGB, [3, 3].
    """
    values = colors / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    if vision is not None:
        linear = (linear @ vision.T).clip(min=0)
    return np.asarray(np.cbrt(linear @ _CONES.T) @ _LAB.T)


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


def blend(image: Pixels, mask: ClassMask, *, alpha: float = DEFAULT_ALPHA) -> Pixels:
    """Color every class of the mask over the image, [H, W, 3], with outlines that are bright inside and dark outside.

    Args:
        image: The image, [H, W, 3].
        mask: Its mask, [H, W].
        alpha: Opacity of the colors, from 0 (only the outlines) to 1.
    """
    check_alpha(alpha)
    colors = overlay_palette(int(mask.max()) + 1).astype(np.float32)
    thickness = max(1, round(min(mask.shape) / 300))
    inside, outside = _edges(mask, thickness=thickness), _edges(~mask, thickness=thickness)
    fade = min(1.0, 2 * alpha)  # of the image's own colors: a class keeps the hue of its legend entry
    result = np.empty_like(image)
    step = max(1, _BAND_PIXELS // mask.shape[1])
    for rows in (slice(top, top + step) for top in range(0, len(mask), step)):
        pixels = image[rows].astype(np.float32)
        faded = pixels + fade * (pixels.mean(2, keepdims=True) - pixels)
        classes = (1 - alpha) * faded + alpha * colors[mask[rows]]
        fill = np.where(mask[rows, :, None] > 0, classes, (1 - _DARKENING * fade) * pixels)
        fill[outside[rows]] *= 0.3
        fill[inside[rows]] = 0.25 * fill[inside[rows]] + 0.75 * 255
        result[rows] = (fill + 0.5).astype(np.uint8)
    return result


def check_alpha(alpha: float) -> None:
    """Raise a `ConfigError` unless a number is an opacity."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha is an opacity from 0 to 1, got {alpha}")


def add_legend(blended: Pixels, entries: Sequence[tuple[int, str]]) -> Image.Image:
    """Add a legend to the right of an image; the pixels of the image keep their place.

    Args:
        blended: Image with the mask over it, [H, W, 3].
        entries: Mask value and text of each class.
    """
    height, width = blended.shape[:2]
    text_size = max(_MIN_TEXT_SIZE, round((height * width) ** 0.5 / 26))
    legend = draw_legend(entries, text_size=text_size, height=height)
    canvas = Image.new("RGB", (width + legend.width, max(height, legend.height)), _LEGEND_BACKGROUND)
    canvas.paste(Image.fromarray(blended))
    canvas.paste(legend, (width, 0))
    return canvas


def draw_legend(entries: Sequence[tuple[int, str]], *, text_size: int = 20, height: int = 800) -> Image.Image:
    """Draw a legend in columns: a colored square and a text for each class.

    Args:
        entries: Mask value and text of each class; without any the legend reads "no known class found".
        text_size: Font size in pixels.
        height: Height to fill before a further column starts; at least some rows are filled.
    """
    font = ImageFont.load_default(text_size)
    pad, row_height = text_size * 3 // 4, text_size * 7 // 4
    num_rows = max(_MIN_LEGEND_ROWS, (height - pad) // row_height)
    texts = [text if len(text) <= _MAX_LEGEND_TEXT else text[: _MAX_LEGEND_TEXT - 1] + "…" for _, text in entries]
    texts = texts or ["no known class found"]
    swatch = text_size + pad // 2 if entries else 0
    column_width = swatch + round(max(font.getlength(text) for text in texts)) + 2 * pad
    size = (-(-len(texts) // num_rows) * column_width, min(len(texts), num_rows) * row_height + pad)
    legend = Image.new("RGB", size, _LEGEND_BACKGROUND)
    draw = ImageDraw.Draw(legend)
    colors = overlay_palette(max((value for value, _ in entries), default=0) + 1)
    for index, text in enumerate(texts):
        column, row = divmod(index, num_rows)
        left, middle = column * column_width + pad, pad // 2 + row * row_height + row_height // 2
        if entries:
            box = (left, middle - text_size // 2, left + text_size, middle + text_size // 2)
            draw.rounded_rectangle(box, radius=text_size // 5, fill=tuple(colors[entries[index][0]].tolist()))
        draw.text((left + swatch, middle), text, fill=_LEGEND_TEXT, font=font, anchor="lm")
    return legend


@cache
def _distinct_colors(count: int) -> NDArray[np.uint8]:
    """Colors of which each is farthest from all before it, beginning with red, [count, 3]."""
    levels = np.arange(0, 256, _CHANNEL_STEP, dtype=np.uint8)
    colors = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(-1, 3)
    lightness, *chroma = perceived(colors).T
    darkest, lightest = _LIGHTNESS
    colors = colors[(lightness >= darkest) & (lightness <= lightest) & (np.hypot(*chroma) >= _MIN_CHROMA)]
    visions = [perceived(colors)]
    visions += [_COLOR_BLIND_WEIGHT * perceived(colors, vision) for vision in (DEUTERANOPIA, PROTANOPIA)]
    order, nearest = [int((colors == (255, 0, 0)).all(1).argmax())], np.full(len(colors), np.inf)
    while len(order) < count:
        distances = [((vision - vision[order[-1]]) ** 2).sum(1) for vision in visions]
        nearest = np.minimum(nearest, np.min(distances, axis=0))
        order.append(int(nearest.argmax()))
    return np.asarray(colors[order])


def _edges(mask: ClassMask, *, thickness: int) -> NDArray[np.bool_]:
    """Pixels within `thickness` of another class, on the side of the higher class."""
    edges = np.zeros(mask.shape, dtype=bool)
    for step in range(1, thickness + 1):
        edges[step:] |= mask[step:] > mask[:-step]
        edges[:-step] |= mask[:-step] > mask[step:]
        edges[:, step:] |= mask[:, step:] > mask[:, :-step]
        edges[:, :-step] |= mask[:, :-step] > mask[:, step:]
    return edges
