"""A folder of tagged images with masks, as a user may have it."""

from pathlib import Path

import numpy as np
from PIL import Image

import tagseg
from tagseg.data import shapes, shapes_masks
from tests.training.small_run import small_recipe


def write_photos(folder: Path) -> Path:
    """Write photos.csv, images/, and masks in a separate folder, ground truth/."""
    (folder / "images").mkdir()
    (folder / "ground truth").mkdir()
    data, ground_truth = shapes(40, size=48), shapes_masks(40, size=48)
    # Classes of a table, and so the values of its masks, are in alphabetical order.
    values = np.array([0, *(1 + sorted(data.classes).index(name) for name in data.classes)], np.uint8)
    rows = ["image,labels"]
    for index, name in enumerate(data.image_ids):
        Image.fromarray(data[index][0].permute(1, 2, 0).numpy()).save(folder / "images" / f"{name}.png")
        Image.fromarray(values[ground_truth[name]]).save(folder / "ground truth" / f"{name}.png")
        tags = [tag for tag, present in zip(data.classes, data.labels[index], strict=True) if present]
        rows.append(f"{name}.png,{';'.join(tags)}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")
    return folder


def photos_source(folder: Path) -> tagseg.DataSource:
    return tagseg.DataSource(str(folder / "photos.csv"), (str(folder / "images"),))


def train_on_photos(folder: Path) -> Path:
    """Train a small network on the photos and return the folder of the run."""
    out = folder / "runs" / "first"
    tagseg.train(photos_source(folder), out, recipe=small_recipe(), workers=0)
    return out
