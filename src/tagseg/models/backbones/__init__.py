"""Backbones by name: the paper's four, and any convolutional network of timm."""

from collections.abc import Callable
from functools import partial

import timm

from tagseg.errors import unknown_name
from tagseg.models.backbones.base import Backbone
from tagseg.models.backbones.resnet import ResNet
from tagseg.models.backbones.timm_cnn import TimmCNN
from tagseg.models.backbones.vgg16 import VGG16
from tagseg.models.backbones.wideresnet38 import WideResNet38

__all__ = ["PAPER_BACKBONES", "Backbone", "ResNet", "build_backbone"]

PAPER_BACKBONES: dict[str, Callable[[int], Backbone]] = {
    "wideresnet38": WideResNet38,
    "vgg16": VGG16,
    "resnet50": partial(ResNet, 50),
    "resnet101": partial(ResNet, 101),
}


def build_backbone(name: str, in_channels: int = 3) -> Backbone:
    """A backbone with random weights.

    Args:
        name: one of the paper's (`wideresnet38`, `vgg16`, `resnet50`, `resnet101`) or a timm name. A timm name with a
            tag, such as `resnet50.a1_in1k`, is timm's own network even where the paper has one of that name.
        in_channels: channels of the image.
    """
    if in_channels < 1:
        raise ValueError(f"in_channels must be 1 or more, got {in_channels}")
    if name in PAPER_BACKBONES:
        return PAPER_BACKBONES[name](in_channels)
    if not timm.is_model(name):
        raise unknown_name(
            "backbone",
            name,
            PAPER_BACKBONES,
            more=" and every convolutional network of timm",
            hidden=timm.list_models(),
        )
    return TimmCNN(name, in_channels)
