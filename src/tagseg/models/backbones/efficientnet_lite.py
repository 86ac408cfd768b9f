"""EfficientNet-Lite0 with TensorFlow's padding, at stride 16: the backbone of the default model.

The network is timm's `tf_efficientnet_lite0` with the same tensor names. It is written out here because timm, which
imports torchvision and with it torch's compiler, takes five seconds to import.
"""

import math
from collections.abc import Iterable

import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.models.backbones.base import Backbone
from tagseg.models.backbones.timm_cnn import timm_features, timm_layer

_NORM_EPSILON = 1e-3
# Per stage after the first: output channels, kernel, stride of the first block, dilation of each block. The sixth stage
# would stride; the blocks after its first one are dilated instead.
_STAGES = (
    (24, 3, 2, (1, 1)),
    (40, 5, 2, (1, 1)),
    (80, 3, 2, (1, 1, 1)),
    (112, 5, 1, (1, 1, 1)),
    (192, 5, 1, (1, 2, 2, 2)),
    (320, 3, 1, (2,)),
)
_EXPANSION = 6


class Conv2dSame(nn.Conv2d):
    """Convolution with TensorFlow's `same` padding, which depends on the image's size."""

    def forward(self, x: Tensor) -> Tensor:
        """Pad [B, C, H, W] to a multiple of the stride and convolve."""
        bottom, right = (
            -side % stride + (kernel - 1) * dilation + 1 - stride  # never negative: kernels are as large as strides
            for side, stride, kernel, dilation in zip(
                x.shape[-2:], self.stride, self.kernel_size, self.dilation, strict=True
            )
        )
        x = F.pad(x, [right // 2, right - right // 2, bottom // 2, bottom - bottom // 2])
        return F.conv2d(x, self.weight, self.bias, self.stride, (0, 0), self.dilation, self.groups)


def same_padded_convolutions() -> tuple[type[nn.Conv2d], ...]:
    """Classes of convolutions whose padding depends on the image's size: `Conv2dSame`, and timm's where imported."""
    return (Conv2dSame, *timm_layer("Conv2dSame"))


class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0 without its classifier."""

    skip_channels = 24
    deep_channels = 320
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    bias_rate = 1.0

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.net = _Features(in_channels)
        if in_channels != len(self.mean):
            self.mean, self.std = Backbone.mean, Backbone.std

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the maps of normalized images [B, 3, H, W] at stride 4 and 16."""
        return self.net(x)  # type: ignore[no-any-return]

    def download_timm_weights(self, name: str) -> dict[str, Tensor]:
        """Download timm's weights of `net`, adapted to the input channels."""
        net = timm_features(name, self.in_channels, pretrained=True, output_stride=16, out_indices=(1, 4))
        weights: dict[str, Tensor] = net.state_dict()
        return weights

    def first_layers(self) -> Iterable[nn.Module]:
        """First convolution."""
        return (self.net.conv_stem,)


class _Features(nn.Module):
    """Stem and blocks, with timm's names."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.conv_stem = Conv2dSame(in_channels, 32, 3, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(32, _NORM_EPSILON)
        self.act = nn.ReLU6(inplace=True)
        stages: list[nn.Sequential] = [nn.Sequential(_DepthwiseSeparable(32, 16))]
        inputs = 16
        for outputs, kernel, stride, dilations in _STAGES:
            stage: list[nn.Module] = []
            for dilation in dilations:
                block_stride = 1 if stage else stride
                stage.append(_InvertedResidual(inputs, outputs, kernel, stride=block_stride, dilation=dilation))
                inputs = outputs
            stages.append(nn.Sequential(*stage))
        self.blocks = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
                nn.init.normal_(module.weight, 0, math.sqrt(2.0 / fan_out))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.act(self.bn1(self.conv_stem(x)))
        skip = self.blocks[1](self.blocks[0](x))
        return skip, self.blocks[2:](skip)


class _DepthwiseSeparable(nn.Module):
    """Depthwise 3x3 convolution, then a linear 1x1 projection."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv_dw = _depthwise(inputs, 3)
        self.bn1 = nn.BatchNorm2d(inputs, _NORM_EPSILON)
        self.conv_pw = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs, _NORM_EPSILON)
        self.act = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(self.act(self.bn1(self.conv_dw(x)))))  # type: ignore[no-any-return]


class _InvertedResidual(nn.Module):
    """1x1 expansion, depthwise convolution, linear 1x1 projection; with a shortcut if the shape stays."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int, dilation: int) -> None:
        super().__init__()
        width = _EXPANSION * inputs
        self.conv_pw = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, _NORM_EPSILON)
        self.act1 = nn.ReLU6(inplace=True)
        self.conv_dw = _depthwise(width, kernel, stride=stride, dilation=dilation)
        self.bn2 = nn.BatchNorm2d(width, _NORM_EPSILON)
        self.act2 = nn.ReLU6(inplace=True)
        self.conv_pwl = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs, _NORM_EPSILON)
        self.has_shortcut = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.bn1(self.conv_pw(x)))
        y = self.act2(self.bn2(self.conv_dw(y)))
        y = self.bn3(self.conv_pwl(y))
        return y + x if self.has_shortcut else y  # type: ignore[no-any-return]


def _depthwise(channels: int, kernel: int, *, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    if stride > 1:
        return Conv2dSame(channels, channels, kernel, stride, dilation=dilation, groups=channels, bias=False)
    padding = kernel // 2 * dilation
    return nn.Conv2d(channels, channels, kernel, padding=padding, dilation=dilation, groups=channels, bias=False)
