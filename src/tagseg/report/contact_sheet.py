"""Contact sheets: images in rows with titles, as one PNG file."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagseg._files import write_atomically
from tagseg.predict.resize import ClassMask

LegendEntry = tuple[tuple[int, int, int], str]
_GAP = 8
_MAX_COLUMNS = 6  # after which all rows continue below


def contact_sheet(
    rows: Sequence[Sequence[Image.Image]],
    row_titles: Sequence[str],
    path: Path,
    *,
    column_titles: Sequence[str] = (),
    legend: Sequence[LegendEntry] = (),
    side: int = 150,
    same_height: bool = False,
    text_size: int = 15,
) -> Path:
    """Write images side by side into one PNG file.

    Args:
        rows: Images of each row, as many in each. Indexed images, such as masks, are resized without interpolation.
        row_titles: Title of each row.
        path: The PNG file.
        column_titles: Title of each column; empty for none.
        legend: Colors and what they mean, shown below the images.
        side: Longer side of each image in the sheet.
        same_height: Make `side` the height of each image instead; a column is as wide as its images.
        text_size: Font size in pixels.

    Returns:
        Path of the file.
    """
    column_count = len(rows[0])
    columns = min(_MAX_COLUMNS, column_count)
    font, line = ImageFont.load_default(text_size), text_size + _GAP
    margin = round(max(font.getlength(title) for title in row_titles)) + _GAP
    header = line if column_titles else 0
    tiles = [[_resize(image, side, same_height=same_height) for image in row] for row in rows]
    widths = [
        max(tile.width for row in tiles for tile in row[position::columns]) if same_height else side
        for position in range(columns)
    ]
    lefts = list(accumulate((width + _GAP for width in widths), initial=margin))
    band_height = header + len(rows) * (side + _GAP) + _GAP
    images_height = -(-column_count // columns) * band_height
    height = images_height + -(-len(legend) // columns) * line
    sheet = Image.new("RGB", (lefts[-1], height), "white")
    draw = ImageDraw.Draw(sheet)
    for column in range(column_count):
        center = lefts[column % columns] + widths[column % columns] // 2
        top = column // columns * band_height
        if column_titles:
            draw.text((center, top + line // 2), column_titles[column], fill="black", font=font, anchor="mm")
        for row, title in enumerate(row_titles):
            middle = top + header + row * (side + _GAP) + side // 2
            if column % columns == 0:
                draw.text((0, middle), title, fill="black", font=font, anchor="lm")
            tile = tiles[row][column]
            sheet.paste(tile, (center - tile.width // 2, middle - tile.height // 2))
    for index, (color, name) in enumerate(legend):
        left, top = lefts[index % columns], images_height + index // columns * line
        draw.rectangle((left, top, left + text_size, top + text_size), fill=color)
        draw.text((left + line, top + text_size // 2), name, fill="black", font=font, anchor="lm")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda part: sheet.save(part, "PNG", optimize=True))
    return path


def mask_legend(masks: Sequence[ClassMask], names: Mapping[int, str], colors: NDArray[np.uint8]) -> list[LegendEntry]:
    """Colors and names of the classes that occur in masks.

    Args:
        masks: Masks in the sheet.
        names: Names by mask value; other values are left out.
        colors: Color of each mask value, [N, 3].
    """
    values = sorted(names.keys() & {int(value) for mask in masks for value in np.unique(mask)})
    return [((red, green, blue), names[value]) for value in values for red, green, blue in [colors[value].tolist()]]


def _resize(image: Image.Image, side: int, *, same_height: bool) -> Image.Image:
    """Resize an image to a longer side of `side`, or to this height, in RGB."""
    factor = side / (image.height if same_height else max(image.size))
    size = (max(1, round(factor * image.width)), max(1, round(factor * image.height)))
    resampling = Image.Resampling.NEAREST if image.mode == "P" else Image.Resampling.BICUBIC
    return image.convert("RGB").resize(size, resampling)
