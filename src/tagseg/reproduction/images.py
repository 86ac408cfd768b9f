"""Masks of validation images that a rule chose, in one figure; the photographs themselves are not shown."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tagseg.data import DataSource
from tagseg.data.masks import IGNORE_LABEL
from tagseg.predict import load
from tagseg.predict.palette import palette, to_indexed
from tagseg.predict.tiles import Mask
from tagseg.report.stages import evenly_spaced

COUNT = 12
_ROWS = ("prediction", "with CRF", "ground truth")
_COLUMNS, _SIDE, _GAP, _MARGIN, _TEXT = 6, 150, 8, 96, 15


def draw_masks(run: Path, val: DataSource, path: Path, *, threshold: float, count: int = COUNT) -> Path:
    """Draw a run's masks at the paper's scales and flips, with the scores deciding which classes an image has.

    Args:
        run: the run's folder.
        val: the images, with masks.
        path: the PNG.
        threshold: the least score with which a class is kept.
        count: how many images, evenly spaced over the sorted IDs of those that have masks.
    """
    model = load(run)
    model.settings = model.settings.with_threshold(threshold)
    data, ground_truth = val.open(model.classes), val.open_masks(model.classes)
    judged = [index for index, name in enumerate(data.image_ids) if name in ground_truth]
    shown: dict[str, list[Mask]] = {}
    for position in evenly_spaced([data.image_ids[index] for index in judged], count):
        name, pixels = data.image_ids[judged[position]], data.images.read(judged[position])
        plain, refined = (model.predict(pixels, tta=True, crf=crf).mask for crf in (False, True))
        shown[name] = [plain, refined, ground_truth[name]]
    sheet = _sheet(shown, ("background", *model.classes))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, optimize=True)
    return path


def _sheet(shown: dict[str, list[Mask]], names: tuple[str, ...]) -> Image.Image:
    """Bands of images side by side, a row for each kind of mask, and at the end what the colours mean."""
    font, line = ImageFont.load_default(_TEXT), _TEXT + _GAP
    band = line + len(_ROWS) * (_SIDE + _GAP) + _GAP
    present = sorted({int(value) for masks in shown.values() for mask in masks for value in np.unique(mask)})
    legend = [(value, "not judged" if value == IGNORE_LABEL else names[value]) for value in present]
    height = -(-len(shown) // _COLUMNS) * band + -(-len(legend) // _COLUMNS) * line
    sheet = Image.new("RGB", (_MARGIN + _COLUMNS * (_SIDE + _GAP), height), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (name, masks) in enumerate(shown.items()):
        left, top = _MARGIN + index % _COLUMNS * (_SIDE + _GAP), index // _COLUMNS * band
        draw.text((left + _SIDE // 2, top + line // 2), name, fill="black", font=font, anchor="mm")
        for row, (title, mask) in enumerate(zip(_ROWS, masks, strict=True)):
            middle = top + line + row * (_SIDE + _GAP) + _SIDE // 2
            if left == _MARGIN:
                draw.text((0, middle), title, fill="black", font=font, anchor="lm")
            tile = _tile(mask)
            sheet.paste(tile, (left + (_SIDE - tile.width) // 2, middle - tile.height // 2))
    colours = palette(256)
    for index, (value, name) in enumerate(legend):
        left = _MARGIN + index % _COLUMNS * (_SIDE + _GAP)
        top = height - (-(-len(legend) // _COLUMNS) - index // _COLUMNS) * line
        draw.rectangle((left, top, left + _TEXT, top + _TEXT), fill=tuple(colours[value].tolist()))
        draw.text((left + line, top + _TEXT // 2), name, fill="black", font=font, anchor="lm")
    return sheet


def _tile(mask: Mask) -> Image.Image:
    """A mask in its colours, as large as its place allows."""
    image = to_indexed(mask).convert("RGB")
    factor = _SIDE / max(image.size)
    size = (max(1, round(factor * image.width)), max(1, round(factor * image.height)))
    return image.resize(size, Image.Resampling.NEAREST)
