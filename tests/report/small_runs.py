"""Small trained runs on shapes, with class names that would break a page without escaping."""

from functools import partial
from pathlib import Path

import torch

from tagseg.data import ImageDataset, MaskDataset, shapes, shapes_masks
from tagseg.models import build_network
from tagseg.training.loop import train_network
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import prepare_folder

SIZE = 48
CLASSES = ("<b>disc", 'a "square" & co', "triangle", "star", "ring", "cross")
SECTIONS = ["diagnosis", "tags", "images", "refinement", "curves", "evaluation", "dataset", "configuration"]
STAGES = ["input", "prediction", "refinement", "pseudo label", "ground truth"]


def make_images(count: int, split: str) -> ImageDataset:
    """Shapes with the class names of this module."""
    data = shapes(count, size=SIZE, split=split)
    return ImageDataset(CLASSES, data.image_ids, data.labels, data.images)


def make_masks(count: int) -> MaskDataset:
    """Masks of the validation images."""
    masks = shapes_masks(count, size=SIZE, split="val")
    return MaskDataset(CLASSES, {name: partial(masks.__getitem__, name) for name in masks})


IMAGES, MASKS, TRAIN_IMAGES = make_images(12, "val"), make_masks(12), make_images(24, "train")


def train(out: Path, *changes: str, epochs: int = 2) -> Path:
    """Train a tiny network and return the folder of the run."""
    settings = ("backbone=test_resnet", "pretrained=false", "width=16")
    changes = (*(f"model.{setting}" for setting in settings), f"transforms.crop={SIZE}", *changes)
    schedule = (f"training.epochs={epochs}", "training.classification_epochs=1", "training.batch_size=8")
    recipe = Recipe.load("default", [*changes, *schedule])
    data = {"train": {"data": "shapes", "image_count": 24}, "validation": {"data": "shapes", "image_count": 12}}
    prepare_folder(out, recipe, CLASSES, data, images={})
    torch.manual_seed(0)
    network = build_network(recipe.model, CLASSES)
    train_network(network, recipe, TRAIN_IMAGES, IMAGES, out, measure=lambda _: {"mIoU predicted-tags": 12.5})
    return out
