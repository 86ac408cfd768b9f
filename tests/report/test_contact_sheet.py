"""Contact sheets."""

from pathlib import Path

import numpy as np
from PIL import Image

from tagseg.predict.render import mask_image, palette
from tagseg.report.contact_sheet import contact_sheet, mask_legend


def test_sheet_shows_every_image_in_bands_with_a_legend(tmp_path: Path) -> None:
    photos = [Image.new("RGB", (40, 20), (10 * index, 0, 200)) for index in range(1, 9)]
    masks = [mask_image(np.full((20, 40), index, dtype=np.uint8)) for index in range(1, 9)]
    legend = [((1, 2, 3), "one"), ((4, 5, 6), "two")]
    path = contact_sheet([photos, masks], ["photo", "mask"], tmp_path / "new" / "sheet.png", legend=legend, side=60)
    colors = {color for _, color in Image.open(path).convert("RGB").getcolors(1 << 20) or []}
    assert {photo.getpixel((0, 0)) for photo in photos} <= colors
    assert {mask.convert("RGB").getpixel((0, 0)) for mask in masks} <= colors
    assert {(1, 2, 3), (4, 5, 6)} <= colors


def test_masks_are_resized_without_interpolation(tmp_path: Path) -> None:
    mask = mask_image(np.array([[1, 2], [2, 1]], dtype=np.uint8))
    path = contact_sheet([[mask]], [""], tmp_path / "sheet.png", side=50)
    colors = {color for _, color in Image.open(path).convert("RGB").getcolors(1 << 20) or []}
    assert colors == {(255, 255, 255), (128, 0, 0), (0, 128, 0)}


def test_columns_of_one_height_are_as_wide_as_their_images(tmp_path: Path) -> None:
    wide, tall = Image.new("RGB", (40, 20), "red"), Image.new("RGB", (20, 40), "blue")
    sheet = Image.open(contact_sheet([[wide, tall]], [""], tmp_path / "sheet.png", side=60, same_height=True))
    colors = {color: count for count, color in sheet.getcolors(1 << 20) or []}
    assert colors[255, 0, 0] == 120 * 60
    assert colors[0, 0, 255] == 30 * 60
    assert sheet.width == 8 + 120 + 8 + 30 + 8


def test_legend_names_the_classes_in_the_masks() -> None:
    masks = [np.array([[0, 2]], dtype=np.uint8), np.array([[1, 255]], dtype=np.uint8)]
    names = {1: "cat", 2: "dog", 3: "horse", 255: "ignored"}
    colors = palette(256)
    assert mask_legend(masks, names, colors) == [
        ((128, 0, 0), "cat"),
        ((0, 128, 0), "dog"),
        (tuple(colors[255].tolist()), "ignored"),
    ]
