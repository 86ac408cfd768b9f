"""Networks by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tagseg.models.backbones import PAPER_BACKBONES, build_backbone
from tagseg.models.backbones.resnet import ResNet
from tagseg.models.cam import CAM
from tagseg.models.config import ModelConfig, name_classes
from tagseg.models.network import Network
from tagseg.models.segmenter import Segmenter
from tagseg.models.weights import load_pretrained


def build_model(
    backbone: str,
    classes: int | Sequence[str],
    *,
    pooling: str = "ngwp",
    penalty: str = "focal",
    penalty_p: float = 3.0,
    penalty_lambda: float = 0.01,
    gate: str = "stochastic",
    psi: float = 0.3,
    gci: bool | Literal["paper"] | None = None,
    width: int = 256,
    in_channels: int = 3,
    pretrained: bool | str | Path = False,
    finetune: bool | None = None,
) -> Segmenter:
    """The method's network.

    Args:
        backbone: `wideresnet38`, `vgg16`, `resnet50`, `resnet101` as the paper has them, or a network of timm by name.
        classes: how many, or their names, without the background.
        pooling: `ngwp` (Eq. 3), or for comparison `gap` (Eq. 1), `max`, `lse`, `gwp`.
        penalty: the size penalty: `focal` (Eq. 5), `plain` (Eq. 4) or `none`.
        penalty_p: how fast the focal penalty fades as a mask grows.
        penalty_lambda: its magnitude; an empty mask costs log(lambda).
        gate: `stochastic` (Eq. 9), `stochastic-pixel` (one draw a pixel, as the paper words it), `deterministic` or
            `none`.
        psi: the gate's share of shallow features.
        gci: Global Cue Injection (Eq. 11); `paper` takes the paper's formula instead of the published network's.
            On by default wherever there is a gate.
        width: channels of the ASPP and the decoder; fewer make a smaller and faster network.
        in_channels: channels of the images.
        pretrained: True for ImageNet weights by the backbone's name (downloaded), the name of one of torchvision's sets
            of weights, or a file: safetensors, or one of the authors' `.pth` files.
        finetune: keep the backbone's first layers and batch norms as they are, and let the rest of it learn slowly. By
            default the paper's backbones are, and others where they have pretrained weights. Training from random
            weights needs False.
    """
    config = ModelConfig(
        backbone=backbone,
        class_names=name_classes(classes),
        in_channels=in_channels,
        pooling=pooling,
        penalty=penalty,
        penalty_p=penalty_p,
        penalty_lambda=penalty_lambda,
        gate=gate,
        psi=psi,
        gci=gate != "none" if gci is None else gci,
        width=width,
        finetune=_resolve_finetune(finetune, backbone, pretrained),
    )
    network = build_network(config, pretrained=pretrained)
    assert isinstance(network, Segmenter)
    return network


def build_cam(
    backbone: str,
    classes: int | Sequence[str],
    *,
    background: float = 0.1,
    in_channels: int = 3,
    pretrained: bool | str | Path = False,
    finetune: bool | None = None,
) -> CAM:
    """The CAM baseline on any backbone.

    Args:
        backbone: see `build_model`, as for all that is not named here.
        classes: how many, or their names, without the background.
        background: the constant value of the background's mask; a class has to exceed it to win a pixel.
        in_channels: channels of the images.
        pretrained: where the backbone's weights come from.
        finetune: whether the backbone is fine-tuned.
    """
    config = ModelConfig(
        method="cam",
        backbone=backbone,
        class_names=name_classes(classes),
        in_channels=in_channels,
        background=background,
        finetune=_resolve_finetune(finetune, backbone, pretrained),
    )
    network = build_network(config, pretrained=pretrained)
    assert isinstance(network, CAM)
    return network


def build_network(config: ModelConfig, *, pretrained: bool | str | Path = False) -> Network:
    """The network that a configuration describes."""
    body = build_backbone(config.backbone, config.in_channels)
    if isinstance(body, ResNet):
        body.set_stride_on(config.stride_on)
    if pretrained:
        load_pretrained(body, config.backbone, pretrained)
    if isinstance(body, ResNet):  # a file of weights says where its stride is, and a saved model has to know
        config = replace(config, stride_on=body.stride_on)
    network_type = CAM if config.method == "cam" else Segmenter
    return network_type(config, body)


def _resolve_finetune(finetune: bool | None, backbone: str, pretrained: bool | str | Path) -> bool:
    return finetune if finetune is not None else backbone in PAPER_BACKBONES or bool(pretrained)
