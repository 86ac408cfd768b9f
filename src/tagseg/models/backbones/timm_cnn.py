"""Any convolutional network of timm as a backbone.

timm is imported only where a network is built: that takes seconds.
"""

import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.errors import ConfigError, first_line
from tagseg.models.backbones.base import Backbone

# (smallest side, multiple of): image sizes to try, in this order. Some networks cannot take odd sizes (HRNet and DLA,
# whose branches no longer match) or small ones (Inception, which does not pad): their images are padded.
_PADDINGS = ((1, 1), (32, 32), (128, 32))
_DILATIONS: tuple[dict[str, Any], ...] = ({"output_stride": 16}, {})
_PROBE = (33, 47)  # small and odd


class TimmCNN(Backbone):
    """A timm network, with a shallow map at stride 4 and a deep one at stride 16, or 32 if it cannot be dilated.

    Args:
        name: Its timm name.
        in_channels: Channels of the images.
    """

    bias_rate = 1.0

    def __init__(self, name: str, in_channels: int = 3) -> None:
        super().__init__()
        import timm

        self.in_channels = in_channels
        self.net, self._layout = _build(name, in_channels)
        self.skip_channels, self.deep_channels = self.net.feature_info.channels()
        self.skip_stride, self.deep_stride = self.net.feature_info.reduction()
        config = timm.get_pretrained_cfg(name)
        if config is not None and in_channels == len(config.mean):
            self.mean, self.std = tuple(config.mean), tuple(config.std)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the shallow and the deep map of normalized images [B, 3, H, W]."""
        height, width = x.shape[-2:]
        extra_h, extra_w = (_padded(side, *self._layout.padding) - side for side in (height, width))
        if not (extra_h or extra_w):
            skip, deep = self.net(x)
            return skip, deep
        skip, deep = self.net(F.pad(x, (0, extra_w, 0, extra_h)))
        return _crop(skip, height, width, self.skip_stride), _crop(deep, height, width, self.deep_stride)

    def download_timm_weights(self, name: str) -> dict[str, Tensor]:
        """Download timm's weights of `net`, adapted to the input channels."""
        if not any(self.net.pretrained_cfg.get(place) for place in ("url", "file", "hf_hub_id")):
            raise ConfigError(f"timm has no weights for {name}", "name a file with {pretrained}")
        net = timm_features(name, self.in_channels, pretrained=True, **self._layout.options)
        weights: dict[str, Tensor] = net.state_dict()
        return weights

    def unused_parameters(self, *, with_skip: bool) -> Iterable[nn.Parameter]:
        """Parameters of parallel branches, such as HRNet's, that only other features need."""
        return [self.net.get_parameter(name) for name in self._layout.unused[with_skip]]

    def first_layers(self) -> Iterable[nn.Module]:
        """First convolution."""
        return (next(module for module in self.net.modules() if isinstance(module, nn.Conv2d)),)


def timm_features(name: str, in_channels: int, *, pretrained: bool = False, **options: Any) -> Any:
    """Build a feature extractor of timm; `pretrained` downloads its weights."""
    import timm

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mapping deprecated model name")
        return timm.create_model(name, pretrained=pretrained, features_only=True, in_chans=in_channels, **options)


def timm_classifier_names(name: str) -> list[str]:
    """Names of all tensors of a timm classifier."""
    import timm

    with torch.random.fork_rng(devices=[]):  # its weights are not used
        return list(timm.create_model(name).state_dict())


def timm_layer(name: str) -> tuple[type[Any], ...]:
    """Class of `timm.layers` by name; empty if timm is not imported, so that no module can be of that class."""
    layers = sys.modules.get("timm.layers")
    return () if layers is None else (getattr(layers, name),)


@dataclass(frozen=True)
class _Layout:
    """How a timm network becomes a backbone.

    Attributes:
        options: Its dilation and its features, for `timm_features`.
        padding: Smallest side of its images, and the number that sides must be a multiple of.
        unused: Parameters that the deep map, with or without the shallow one, does not depend on.
    """

    options: dict[str, Any]
    padding: tuple[int, int]
    unused: dict[bool, list[str]]


def _build(name: str, in_channels: int) -> tuple[Any, _Layout]:
    """Build a network in the first layout that works for a small image; seeds give it the weights timm gives it."""
    reason = ""
    for dilation, padding in product(_DILATIONS, _PADDINGS):
        random_state = torch.get_rng_state()
        try:
            with torch.inference_mode(False), torch.enable_grad():
                with torch.random.fork_rng(devices=[]):
                    whole = timm_features(name, in_channels, **dilation)
                indices = _feature_indices(whole)
                options = {**dilation, "out_indices": indices}
                net = timm_features(name, in_channels, **options)
                unused, channels = _probe(net, in_channels, padding)
                if channels != [whole.feature_info.channels()[index] for index in indices]:
                    raise ValueError("its features are not the [B, C, h, w] maps that it names")
                return net, _Layout(options, padding, unused)
        except (TypeError, AssertionError, NotImplementedError, RuntimeError, ValueError, AttributeError) as error:
            reason = first_line(error)
            torch.set_rng_state(random_state)
    raise ConfigError(
        f"timm's {name!r} does not give feature maps for images of any size, so it cannot be a backbone ({reason})",
        "choose a convolutional network such as resnet18, mobilenetv2_100 or convnext_tiny",
    )


def _probe(net: Any, in_channels: int, padding: tuple[int, int]) -> tuple[dict[bool, list[str]], list[int]]:
    """Compute the maps of a small image; return the parameters without effect, as `_Layout.unused`, and the channels.

    It is a real image: which operators the meta device has depends on the versions of torch and timm.
    """
    is_training = net.training
    net.eval()  # so that no statistics are updated and nothing is drawn
    shape = 1, in_channels, *(_padded(side, *padding) for side in _PROBE)
    skip, deep = net(torch.zeros(shape, device=next(net.parameters()).device))
    net.train(is_training)
    unused = {True: _unused(net, [skip, deep]), False: _unused(net, [deep])}
    return unused, [features.shape[1] for features in (skip, deep) if features.dim() == 4]


def _unused(net: nn.Module, features: list[Tensor]) -> list[str]:
    """Parameters that the features do not depend on."""
    names, parameters = zip(*net.named_parameters(), strict=True)
    used = torch.autograd.grad([f.sum() for f in features], parameters, retain_graph=True, allow_unused=True)
    return [name for name, gradient in zip(names, used, strict=True) if gradient is None]


def _feature_indices(net: Any) -> tuple[int, int]:
    """Indices of the last feature at stride 4 (or the first coarser one) and of the last feature."""
    strides: list[int] = net.feature_info.reduction()
    fine = [index for index, stride in enumerate(strides[:-1]) if stride <= 4]
    skip = fine[-1] if fine else 0
    if strides[skip] > 8:
        raise ValueError(f"its finest feature has stride {strides[skip]}, and more than 8 is too coarse")
    return skip, len(strides) - 1


def _padded(side: int, at_least: int, multiple: int) -> int:
    return -(-max(side, at_least) // multiple) * multiple


def _crop(features: Tensor, height: int, width: int, stride: int) -> Tensor:
    return features[..., : -(-height // stride), : -(-width // stride)]
