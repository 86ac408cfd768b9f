"""Backbones by name: the paper's four, EfficientNet-Lite0, and any CNN or plain vision transformer of timm."""

from collections.abc import Callable, Sequence
from functools import partial

from tagseg.errors import unknown_name
from tagseg.models.backbones.base import Backbone
from tagseg.models.backbones.efficientnet_lite import EfficientNetLite0
from tagseg.models.backbones.resnet import ResNet
from tagseg.models.backbones.timm_cnn import TimmCNN
from tagseg.models.backbones.vgg16 import VGG16
from tagseg.models.backbones.vit import TimmViT
from tagseg.models.backbones.wideresnet38 import WideResNet38

__all__ = ["PAPER_BACKBONES", "Backbone", "EfficientNetLite0", "ResNet", "TimmCNN", "TimmViT", "build_backbone"]

PAPER_BACKBONES: dict[str, Callable[[int], Backbone]] = {
    "wideresnet38": WideResNet38,
    "vgg16": VGG16,
    "resnet50": partial(ResNet, 50),
    "resnet101": partial(ResNet, 101),
}
_BACKBONES = {**PAPER_BACKBONES, "tf_efficientnet_lite0": EfficientNetLite0}


# Modules of timm with plain vision transformers.
_VIT_MODULES = ("vision_transformer", "deit", "eva")


def build_backbone(
    name: str, in_channels: int = 3, *, blocks: Sequence[int] | None = None, trainable_blocks: int | None = None
) -> Backbone:
    """Build a backbone with random weights.

    Args:
        name: One of the paper's (`wideresnet38`, `vgg16`, `resnet50`, `resnet101`) or a timm name. A timm name with a
            tag, such as `resnet50.a1_in1k`, is timm's network even if the paper has one of that name.
        in_channels: Channels of the images.
        blocks: Blocks of a vision transformer whose tokens are used, counted from 1.
        trainable_blocks: Last blocks of a vision transformer that learn; None if all do.
    """
    if in_channels < 1:
        raise ValueError(f"in_channels must be 1 or more, got {in_channels}")
    if name in _BACKBONES:
        return _BACKBONES[name](in_channels)
    import timm  # takes seconds to import, and neither the default model nor the paper's backbones need it

    if not timm.is_model(name):
        raise unknown_name(
            "backbone",
            name,
            PAPER_BACKBONES,
            more=" and every convolutional network and plain vision transformer of timm",
            hidden=timm.list_models(),
        )
    if timm.models.is_model_in_modules(name.partition(".")[0], _VIT_MODULES):
        return TimmViT(name, in_channels, blocks=blocks, trainable_blocks=trainable_blocks)
    return TimmCNN(name, in_channels)
