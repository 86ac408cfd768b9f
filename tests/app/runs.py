"""A small run on generated images, to look at."""

from pathlib import Path

import tagseg
from tagseg.app.context import Context, ModelQueue
from tagseg.app.images import ShownImages
from tagseg.data import ImageDataset, shapes, shapes_masks

SETTINGS = {
    "training": {"epochs": 2, "classification_epochs": 1, "batch_size": 8},
    "model": {"width": 16},
    "transforms": {"crop": 64},
    "validation": {"fraction": 0.3},
    "inference": {"size": 64},
}


def train_small(out: Path) -> Path:
    """Train a network of few weights for two epochs, the second with pseudo labels."""
    tagseg.train("shapes:32", out, recipe=tagseg.Recipe.load("shapes", SETTINGS), workers=0)
    return out


def open_run(run: Path) -> Context:
    """What the page of a run works with."""
    return Context(tagseg.load(run, device="cpu", optimize=False), str(run), run, ModelQueue())


def shown_shapes(count: int = 4, classes: tuple[str, ...] = ()) -> ShownImages:
    """Generated images with their masks; other class names are those of a user."""
    data, masks = shapes(count, split="val"), shapes_masks(count, split="val")
    if classes:
        data = ImageDataset(classes, data.image_ids, data.labels, data.images)
    return ShownImages(data, masks, have_tags=True)
