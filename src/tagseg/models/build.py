"""Networks from options."""

from collections.abc import Sequence
from typing import Any

from tagseg.models.backbones import ResNet, build_backbone
from tagseg.models.base import Network
from tagseg.models.cam import CAM
from tagseg.models.config import ModelConfig, name_classes
from tagseg.models.pretrained import load_pretrained
from tagseg.models.segmenter import Segmenter
from tagseg.models.supervised import SupervisedSegmenter, build_smp

_NETWORKS = {"single-stage": Segmenter, "cam": CAM, "supervised": SupervisedSegmenter}


def build_model(backbone: str, classes: int | Sequence[str], **options: Any) -> Segmenter:
    """Build the network of the method, by default with random weights.

    Args:
        backbone: `wideresnet38`, `vgg16`, `resnet50` or `resnet101` as in the paper, or the name of a timm CNN.
        classes: Number of classes, or their names, without the background.
        **options: Further fields of `ModelConfig`, such as `pretrained=True` or `gate="none"`.
    """
    network = build_network(_config("single-stage", backbone, classes, options))
    assert isinstance(network, Segmenter)
    return network


def build_cam(backbone: str, classes: int | Sequence[str], **options: Any) -> CAM:
    """Build the CAM baseline, by default with random weights.

    Args:
        backbone: Backbone, as in `build_model`.
        classes: Number of classes, or their names, without the background.
        **options: Further fields of `ModelConfig`, such as `pretrained=True` or `background=0.2`.
    """
    network = build_network(_config("cam", backbone, classes, options))
    assert isinstance(network, CAM)
    return network


def build_network(config: ModelConfig, classes: Sequence[str] | None = None) -> Network:
    """Build the network of a configuration, with pretrained weights if it asks for them: a backbone's, or a model's.

    Args:
        config: Options of the network.
        classes: Class names, where the configuration does not have them yet.
    """
    if classes is not None:
        config = config.model_copy(update={"class_names": name_classes(classes)})
    from tagseg.models.transfer import build_from_model, names_model  # loading a model builds its network

    if names_model(config.pretrained):
        return build_from_model(config)
    if config.architecture != "segmenter":
        return build_smp(config)
    trainable_blocks = config.resolve().trainable_blocks
    backbone = build_backbone(
        config.backbone,
        config.in_channels,
        blocks=config.blocks,
        trainable_blocks=None if trainable_blocks == "all" else trainable_blocks,
    )
    if isinstance(backbone, ResNet):
        backbone.set_stride_on(config.stride_on)
    if config.pretrained:
        load_pretrained(backbone, config.backbone, config.pretrained)
    if isinstance(backbone, ResNet):  # the weights decide which convolution strides, and a saved model must keep it
        config = config.model_copy(update={"stride_on": backbone.stride_on})
    context = config.context or ("aspp" if backbone.skip_channels else "conv")
    config = config.model_copy(update={"blocks": getattr(backbone, "blocks", ()), "context": context})
    return _NETWORKS[config.method](config, backbone)


def _config(method: str, backbone: str, classes: int | Sequence[str], options: dict[str, Any]) -> ModelConfig:
    fixed = {"method": method, "backbone": backbone, "class_names": name_classes(classes)}
    return ModelConfig.parse({"pretrained": False, **options, **fixed})
