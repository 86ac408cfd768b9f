"""Small but real runs, on shapes whose names would break a careless page."""

from functools import partial
from pathlib import Path

import torch

from tagseg.data import ImageDataset, MaskDataset, shapes, shapes_masks
from tagseg.training.loop import fit
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import prepare_folder
from tagseg.training.start import build

SIZE = 48
CLASSES = ("<b>disc", 'a "square" & co', "triangle", "star", "ring", "cross")
SECTIONS = ["images", "refinement", "curves", "evaluation", "dataset", "configuration"]
STAGES = ["input", "prediction", "refinement", "pseudo label", "ground truth"]


def tagged(count: int, split: str) -> ImageDataset:
    """Shapes under these names."""
    made = shapes(count, size=SIZE, split=split)
    return ImageDataset(CLASSES, made.image_ids, made.labels, made.images)


def masks(count: int) -> MaskDataset:
    """The masks of the validation images."""
    made = shapes_masks(count, size=SIZE, split="val")
    return MaskDataset(CLASSES, {name: partial(made.__getitem__, name) for name in made})


VALIDATION, TRUTH = tagged(12, "val"), masks(12)


def train(out: Path, *changes: str, epochs: int = 2) -> Path:
    """A run of some seconds."""
    settings = ("backbone=test_resnet", "pretrained=false", "width=16")
    changes = (*(f"model.{setting}" for setting in settings), f"transforms.crop={SIZE}", *changes)
    schedule = (f"training.epochs={epochs}", "training.classification_epochs=1", "training.batch_size=8")
    recipe = Recipe.load("default", [*changes, *schedule])
    learn = tagged(24, "train")
    described = {"train": {"data": "shapes", "image_count": 24}, "validation": {"data": "shapes", "image_count": 12}}
    prepare_folder(out, recipe, CLASSES, described)
    torch.manual_seed(0)
    network = build(recipe.model, CLASSES)
    fit(network, recipe, learn, VALIDATION, out, measure=lambda _: {"mIoU predicted-tags": 12.5})
    return out
