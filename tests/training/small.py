"""A run that takes a second."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tagseg.data import ImageDataset, shapes
from tagseg.data.split import hold_out
from tagseg.models import Network
from tagseg.models.network import batch_norms
from tagseg.training.loop import fit
from tagseg.training.recipe import Recipe
from tagseg.training.start import build

SETTINGS = [
    "model.backbone=test_resnet",
    "model.pretrained=false",
    "model.width=16",
    "transforms.crop=48",
    "training.epochs=3",
    "training.classification_epochs=1",
    "training.batch_size=8",
    "training.lr=0.01",
    "training.precision=fp32",
    "pseudo_labels.iterations=2",
]


def small_recipe(*changes: str) -> Recipe:
    return Recipe.load("default", [*SETTINGS, *changes])


def small_data() -> tuple[ImageDataset, ImageDataset]:
    return hold_out(shapes(40, size=48), 0.2)


def quiet_build(*arguments: Any) -> Network:
    """A network in which nothing is random and every batch norm rests."""
    network = build(*arguments)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    network.resting_norms = lambda: batch_norms(network)  # type: ignore[method-assign]
    return network


def run(
    out: Path,
    recipe: Recipe,
    *,
    workers: int = 0,
    checkpoint_steps: int = 500,
    stop_after: int | None = None,
    quiet: bool = False,
) -> Network:
    """Train or go on; the network as it is at the end."""
    out.mkdir(exist_ok=True)
    train, validation = small_data()
    torch.manual_seed(0)
    network = (quiet_build if quiet else build)(recipe.model, train.classes)
    fit(
        network,
        recipe,
        train,
        validation,
        out,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        stop_after=stop_after,
    )
    return network
