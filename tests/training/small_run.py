"""Small training runs, of about a second each."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from tagseg.data import ImageDataset, shapes
from tagseg.data.dataset import hold_out
from tagseg.models import ModelConfig, Network, build_network
from tagseg.models.base import batch_norms
from tagseg.training.logging import read_metrics
from tagseg.training.loop import train_network
from tagseg.training.recipe import Recipe

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
STUDENT_SETTINGS = [
    "model.backbone=test_resnet",
    "model.pretrained=false",
    "model.width=16",
    "transforms.crop=48",
    "transforms.scale=[0.8, 1.5]",
    "training.epochs=2",
    "training.batch_size=8",
    "training.warmup_steps=0",
    "training.lr=0.003",
    "training.ema=0.9",
    "training.precision=fp32",
    "inference.size=48",
]


def small_recipe(*changes: str) -> Recipe:
    return Recipe.load("default", [*SETTINGS, *changes])


def student_recipe(*changes: str) -> Recipe:
    """Recipe that trains on masks."""
    return Recipe.load("student", [*STUDENT_SETTINGS, *changes])


def small_data() -> tuple[ImageDataset, ImageDataset]:
    return hold_out(shapes(40, size=48), 0.2)


def build_deterministic(config: ModelConfig, classes: Sequence[str]) -> Network:
    """Build a network without dropout and with frozen batch norms."""
    network = build_network(config, classes)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    network.frozen_norms = lambda: batch_norms(network)  # type: ignore[method-assign]
    return network


def run(
    out: Path,
    recipe: Recipe,
    *,
    workers: int = 0,
    checkpoint_steps: int = 500,
    stop_after: int | None = None,
    deterministic: bool = False,
    double: bool = False,
) -> Network:
    """Train or resume, and return the network."""
    out.mkdir(exist_ok=True)
    train, validation = small_data()
    torch.manual_seed(0)
    network = (build_deterministic if deterministic else build_network)(recipe.model, train.classes)
    if double:
        network.double()
    train_network(
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


def validation_losses(out: Path) -> list[float]:
    """Read the validation loss of each epoch."""
    return [line["loss"] for line in read_metrics(out) if line["kind"] == "validation"]
