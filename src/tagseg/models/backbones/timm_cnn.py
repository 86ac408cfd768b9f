"""Any convolutional network of timm, by its timm name, as a backbone."""

import warnings
from collections.abc import Iterable
from typing import Any

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.models.backbones.base import Backbone

# (smallest side, multiple of): what a network is tried with, in this order. Some cannot take odd sizes (HRNet, DLA: the
# branches no longer fit) or small ones (Inception: no padding); their images are padded at the right and the bottom.
_PADDINGS = ((1, 1), (32, 32), (128, 32))
_PROBE = (33, 47)  # small and odd, like the worst image that is allowed


class TimmCNN(Backbone):
    """Features of a timm network at stride 4, and at stride 16 or, where it cannot be dilated, its last."""

    bias_rate = 1.0

    def __init__(self, name: str, in_channels: int = 3) -> None:
        super().__init__()
        self._shape = _probe(name, in_channels)
        self._in_channels = in_channels
        self.net = self._shape.create(name, in_channels)
        self.skip_channels, self.deep_channels = self.net.feature_info.channels()
        self.skip_stride, self.deep_stride = self.net.feature_info.reduction()
        config = timm.get_pretrained_cfg(name)
        if config is not None and in_channels == len(config.mean):
            self.mean, self.std = tuple(config.mean), tuple(config.std)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A normalised image [B, 3, H, W] to the shallow and the deep map."""
        height, width = x.shape[-2:]
        extra_h, extra_w = (_padded(side, *self._shape.padding) - side for side in (height, width))
        if not (extra_h or extra_w):
            skip, deep = self.net(x)
            return skip, deep
        skip, deep = self.net(F.pad(x, (0, extra_w, 0, extra_h)))
        return _crop(skip, height, width, self.skip_stride), _crop(deep, height, width, self.deep_stride)

    def load_timm_weights(self, name: str) -> None:
        """Download timm's weights for this network, adapted to its input channels."""
        self.net.load_state_dict(self._shape.create(name, self._in_channels, pretrained=True).state_dict())

    def unused_parameters(self, *, with_skip: bool) -> Iterable[nn.Parameter]:
        """Parts of networks with parallel branches, such as HRNet, whose results only other features would need."""
        return [self.net.get_parameter(name) for name in self._shape.unused[with_skip]]

    @staticmethod
    def whole_names(name: str) -> list[str]:
        """The names of all tensors of the classifier that timm makes under this name."""
        with torch.device("meta"):
            return list(timm.create_model(name).state_dict())

    def first_layers(self) -> Iterable[nn.Module]:
        """The first convolution."""
        return (next(module for module in self.net.modules() if isinstance(module, nn.Conv2d)),)


class _Shape:
    """How a timm network is to be built: with or without dilation, which features, how images are padded."""

    def __init__(self, options: dict[str, Any], padding: tuple[int, int]) -> None:
        self.options = options
        self.padding = padding
        self.unused: dict[bool, list[str]] = {}

    def create(self, name: str, in_channels: int, *, pretrained: bool = False) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Mapping deprecated model name")
            return timm.create_model(
                name, pretrained=pretrained, features_only=True, in_chans=in_channels, **self.options
            )


def _probe(name: str, in_channels: int) -> _Shape:
    """Find out on the meta device, where nothing is computed, what a network can do."""
    failure: Exception | None = None
    for dilation in ({"output_stride": 16}, {}):
        for padding in _PADDINGS:
            try:
                with torch.device("meta"), torch.inference_mode(False), torch.enable_grad():
                    whole = _Shape(dict(dilation), padding).create(name, in_channels)
                    indices = _feature_indices(whole)
                    shape = _Shape({**dilation, "out_indices": indices}, padding)
                    net = shape.create(name, in_channels)
                    skip, deep = net(torch.zeros(2, in_channels, *(_padded(side, *padding) for side in _PROBE)))
                    shape.unused = {True: _unused(net, [skip, deep]), False: _unused(net, [deep])}
                if skip.dim() != 4 or [skip.shape[1], deep.shape[1]] != [
                    whole.feature_info.channels()[index] for index in indices
                ]:
                    raise ValueError("its features are not [B, C, h, w] maps")
                return shape
            except (TypeError, AssertionError, NotImplementedError, RuntimeError, ValueError, AttributeError) as error:
                failure = error
    reason = (str(failure) or type(failure).__name__).splitlines()[0]
    raise ValueError(
        f"timm's {name!r} does not give feature maps for images of any size, so it cannot be a backbone ({reason}); "
        "choose a convolutional network such as resnet18, mobilenetv2_100 or convnext_tiny"
    )


def _unused(net: nn.Module, features: list[Tensor]) -> list[str]:
    """The parameters that the features do not depend on."""
    names, parameters = zip(*net.named_parameters(), strict=True)
    used = torch.autograd.grad([f.sum() for f in features], parameters, retain_graph=True, allow_unused=True)
    return [name for name, gradient in zip(names, used, strict=True) if gradient is None]


def _feature_indices(net: Any) -> tuple[int, int]:
    """The last feature at stride 4 (or the first coarser one), and the last of all."""
    strides: list[int] = net.feature_info.reduction()
    fine = [index for index, stride in enumerate(strides[:-1]) if stride <= 4]
    skip = fine[-1] if fine else 0
    if strides[skip] > 8:
        raise ValueError(f"its finest feature has stride {strides[skip]}, and at most 8 is of use")
    return skip, len(strides) - 1


def _padded(side: int, at_least: int, multiple: int) -> int:
    return -(-max(side, at_least) // multiple) * multiple


def _crop(features: Tensor, height: int, width: int, stride: int) -> Tensor:
    return features[..., : -(-height // stride), : -(-width // stride)]
