"""Networks that learn from masks: the segmenter with a learned background, and those of segmentation-models-pytorch."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.errors import ConfigError, first_line, unknown_name
from tagseg.models.backbones import Backbone
from tagseg.models.backbones.timm_cnn import timm_classifier_names
from tagseg.models.base import Network, Segmentation, enlarge, full_precision
from tagseg.models.config import ModelConfig
from tagseg.models.pretrained import downloading, joined_name, load_matching_state, read_weights
from tagseg.models.segmenter import Segmenter

_SMP_STRIDE = 32  # sides of an image must be multiples of it
_TIMM_PREFIX = "tu-"  # of timm's encoders in smp
_CENTERED_ENCODERS = ("xception", "inceptionv4", "inceptionresnetv2")  # trained on images in [-1, 1]


def segmentation(logits: Tensor, size: Iterable[int] | None = None) -> Segmentation:
    """Output of a network that learns from masks.

    The score of a class is its highest probability in any pixel, so that a class can be left out exactly where it
    cannot win a pixel.

    Args:
        logits: Scores of each pixel, background first, [B, 1 + C, h, w].
        size: Height and width to which the masks are enlarged; their own by default.
    """
    masks = logits.softmax(1)
    scores = masks[:, 1:].amax((2, 3)).logit(eps=1e-6)
    return Segmentation(scores, masks if size is None else enlarge(masks, tuple(size)), logits)


class SupervisedSegmenter(Segmenter):
    """The method's network with a channel for the background, which masks show."""

    learns_background = True

    def frozen_norms(self) -> Iterable[nn.Module]:
        """Batch norms of a fine-tuned backbone."""
        return Network.frozen_norms(self)

    def forward(self, x: Tensor, *, full_size: bool = True, deep: Tensor | None = None) -> Segmentation:
        """Segment normalized images, as `Segmenter.forward` does."""
        return segmentation(self._pixel_scores(*self._features(x, deep)), x.shape[-2:] if full_size else None)


class SmpEncoder(Backbone):
    """An encoder of segmentation-models-pytorch; its maps go to the decoder that was built for them.

    Args:
        encoder: The encoder.
        name: Its name in segmentation-models-pytorch.
        in_channels: Channels of the images.
    """

    bias_rate = 1.0

    def __init__(self, encoder: nn.Module, name: str, in_channels: int = 3) -> None:
        super().__init__()
        self.net, self.in_channels = encoder, in_channels
        if name.startswith(_TIMM_PREFIX):
            import timm

            config = timm.get_pretrained_cfg(name.removeprefix(_TIMM_PREFIX))
            if config is not None:
                self.mean, self.std = tuple(config.mean), tuple(config.std)
        elif name in _CENTERED_ENCODERS:
            self.mean = self.std = (0.5, 0.5, 0.5)

    def first_layers(self) -> Iterable[nn.Module]:
        """No layer is frozen: encoders have no common name for their first layers."""
        return ()


class SmpSegmenter(Network):
    """An architecture of segmentation-models-pytorch.

    Images whose sides are no multiples of 32 are resized to the next ones.

    Args:
        config: Options of the network.
        backbone: Encoder of the model.
        model: The model, whose decoder and head are used.
    """

    classifier_name = "head.0"

    def __init__(self, config: ModelConfig, backbone: SmpEncoder, model: Any) -> None:
        super().__init__(config, backbone)
        self.decoder, self.head = model.decoder, model.segmentation_head
        # Masks are enlarged later, and only those of classes that are needed.
        if isinstance(self.head[1], nn.Upsample):
            self.head[1] = nn.Identity()
        self.train(self.training)

    def forward(self, x: Tensor, *, full_size: bool = True) -> Segmentation:
        """Segment normalized images, as `Segmenter.forward` does."""
        self._check_input(x)
        size = x.shape[-2:]
        padded = [side + -side % _SMP_STRIDE for side in size]
        resized = x if padded == list(size) else F.interpolate(x, padded, mode="bilinear", align_corners=True)
        logits = full_precision(self.head(self.decoder(self.backbone.net(resized))))  # type: ignore[operator]
        return segmentation(logits, size if full_size else None)


def build_smp(config: ModelConfig) -> SmpSegmenter:
    """Build a network of segmentation-models-pytorch, with pretrained encoder weights if the configuration says so.

    Args:
        config: Options: `architecture` by smp's name, `backbone` by the name of its encoder.
    """
    try:
        import segmentation_models_pytorch as smp
    except ImportError:
        raise ConfigError(
            f"model.architecture={config.architecture!r} needs segmentation-models-pytorch",
            "install it with: pip install 'tagseg[stage2]'",
        ) from None
    architectures = {name: arch for name, arch in smp.MODEL_ARCHITECTURES_MAPPING.items() if name != "dpt"}
    if config.architecture not in architectures:
        raise unknown_name("architecture", config.architecture, ["segmenter", *architectures])
    try:
        model = architectures[config.architecture](
            encoder_name=config.backbone,
            encoder_weights=None,
            in_channels=config.in_channels,
            classes=1 + config.num_classes,
        )
    except (KeyError, ValueError, NotImplementedError, RuntimeError) as error:
        reason = first_line(error)
        raise ConfigError(
            f"{config.backbone!r} cannot be the encoder of {config.architecture} ({reason})",
            "encoders are those of segmentation-models-pytorch, and timm's as tu-NAME",
        ) from None
    encoder = SmpEncoder(model.encoder, config.backbone, config.in_channels)
    if config.pretrained:
        _load_encoder(encoder, config.backbone, config.pretrained)
    return SmpSegmenter(config, encoder, model)


def _load_encoder(encoder: SmpEncoder, name: str, source: bool | str) -> None:
    """Load pretrained weights: smp's ImageNet weights (true), or a file in the layout of timm or torchvision."""
    if source is True:
        from segmentation_models_pytorch.encoders import get_encoder

        with downloading(name):
            state = get_encoder(name, in_channels=encoder.in_channels, weights="imagenet").state_dict()
        encoder.net.load_state_dict(state)
        return
    state, _ = read_weights(Path(str(source)))
    # smp's wrapper of timm adds a prefix, and timm's feature extractors join some names (`stem.0` is `stem_0`).
    names = {joined_name(key.removeprefix("model.")): key for key in encoder.net.state_dict()}
    if name.startswith(_TIMM_PREFIX):
        classifier = timm_classifier_names(name.removeprefix(_TIMM_PREFIX))
        state = {key: value for key, value in state.items() if joined_name(key) in names or key not in classifier}
    renamed = {names.get(joined_name(key), key): value for key, value in state.items()}
    load_matching_state(encoder.net, renamed, origin=str(source))
