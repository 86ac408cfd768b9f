"""Masks of evenly spaced validation images on one contact sheet, without the photographs."""

from pathlib import Path

from tagseg.data import DataSource
from tagseg.data.masks import IGNORE_LABEL
from tagseg.predict import load
from tagseg.predict.render import mask_image, palette
from tagseg.predict.resize import ClassMask
from tagseg.report.contact_sheet import contact_sheet, mask_legend
from tagseg.report.stages import evenly_spaced

COUNT = 12  # images, evenly spaced over the sorted IDs of those that have masks


def draw_masks(run: Path, val: DataSource, path: Path, *, threshold: float) -> Path:
    """Draw the masks of a run with test-time augmentation and predicted labels.

    Args:
        run: Folder of the run.
        val: Images with masks.
        path: The PNG file.
        threshold: Lowest probability of a predicted class.
    """
    model = load(run)
    model.settings = model.settings.with_threshold(threshold)
    data, masks = val.open(model.classes), val.open_masks(model.classes)
    image_ids = [name for name in data.image_ids if name in masks]
    chosen_ids = [image_ids[position] for position in evenly_spaced(image_ids, COUNT)]
    rows: dict[str, list[ClassMask]] = {"prediction": [], "with CRF": [], "ground truth": []}
    for image_id in chosen_ids:
        pixels = data.images.read(data.image_ids.index(image_id))
        rows["prediction"].append(model.predict(pixels, tta=True).mask)
        rows["with CRF"].append(model.predict(pixels, tta=True, crf=True).mask)
        rows["ground truth"].append(masks[image_id])
    names = dict(enumerate(("background", *model.classes))) | {IGNORE_LABEL: "ignored"}
    return contact_sheet(
        [[mask_image(mask) for mask in row] for row in rows.values()],
        list(rows),
        path,
        column_titles=chosen_ids,
        legend=mask_legend([mask for row in rows.values() for mask in row], names, palette(256)),
    )
