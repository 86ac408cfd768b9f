"""Contact sheets: images in rows with titles, as one PNG file."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_GAP = 8


def contact_sheet(
    rows: Sequence[Sequence[Image.Image]],
    row_titles: Sequence[str],
    path: Path,
    *,
    column_titles: Sequence[str] = (),
    max_columns: int = 6,
    legend: Sequence[tuple[tuple[int, int, int], str]] = (),
    side: int = 150,
    text_size: int = 15,
) -> Path:
    """Write images side by side into one PNG file.

    Args:
        rows: Images of each row, as many in each. Indexed images, such as masks, are resized without interpolation.
        row_titles: Title of each row.
        path: The PNG file.
        column_titles: Title of each column; empty for none.
        max_columns: Number of columns after which all rows continue below.
        legend: Colors and what they mean, shown below the images.
        side: Longer side of each image in the sheet.
        text_size: Font size in pixels.

    Returns:
        Path of the file.
    """
    column_count = len(rows[0])
    columns = min(max_columns, column_count)
    font, line = ImageFont.load_default(text_size), text_size + _GAP
    margin = round(max(font.getlength(title) for title in row_titles)) + _GAP
    header = line if column_titles else 0
    band_height = header + len(rows) * (side + _GAP) + _GAP
    images_height = -(-column_count // columns) * band_height
    height = images_height + -(-len(legend) // columns) * line
    sheet = Image.new("RGB", (margin + columns * (side + _GAP), height), "white")
    draw = ImageDraw.Draw(sheet)
    for column in range(column_count):
        left, top = margin + column % columns * (side + _GAP), column // columns * band_height
        if column_titles:
            draw.text((left + side // 2, top + line // 2), column_titles[column], fill="black", font=font, anchor="mm")
        for row, title in enumerate(row_titles):
            middle = top + header + row * (side + _GAP) + side // 2
            if column % columns == 0:
                draw.text((0, middle), title, fill="black", font=font, anchor="lm")
            tile = _resize(rows[row][column], side)
            sheet.paste(tile, (left + (side - tile.width) // 2, middle - tile.height // 2))
    for index, (color, name) in enumerate(legend):
        left, top = margin + index % columns * (side + _GAP), images_height + index // columns * line
        draw.rectangle((left, top, left + text_size, top + text_size), fill=color)
        draw.text((left + line, top + text_size // 2), name, fill="black", font=font, anchor="lm")
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, optimize=True)
    return path


def _resize(image: Image.Image, side: int) -> Image.Image:
    """Resize an image to a longer side of `side`, in RGB."""
    factor = side / max(image.size)
    size = (max(1, round(factor * image.width)), max(1, round(factor * image.height)))
    resampling = Image.Resampling.NEAREST if image.mode == "P" else Image.Resampling.BICUBIC
    return image.convert("RGB").resize(size, resampling)
