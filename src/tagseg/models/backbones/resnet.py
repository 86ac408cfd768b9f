"""ResNet-50 and ResNet-101 at stride 16: torchvision's, with the last stage at stride 1 and without dilation."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from tagseg.errors import unknown_name
from tagseg.models.backbones.base import Backbone

STRIDE_ON = ("conv1", "conv2")


class ResNet(Backbone):
    """A torchvision ResNet without its classifier.

    Args:
        depth: 50 or 101.
        in_channels: Channels of the images.
        stride_on: Strided convolution in the first block of stages 2 and 3: the 3x3 `conv2` as in torchvision, or the
            1x1 `conv1` as in the original (MSRA, Caffe) weights. Weights of one kind load into the other without an
            error and give wrong results, so weight files name theirs.
    """

    skip_channels = 256
    deep_channels = 2048
    bias_rate = 1.0

    def __init__(self, depth: int, in_channels: int = 3, *, stride_on: str = "conv2") -> None:
        super().__init__()
        import torchvision  # takes seconds to import

        net = getattr(torchvision.models, f"resnet{depth}")(weights=None)
        if in_channels != 3:
            net.conv1 = nn.Conv2d(in_channels, 64, 7, 2, padding=3, bias=False)
            nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.conv1, self.bn1, self.relu, self.maxpool = net.conv1, net.bn1, net.relu, net.maxpool
        self.layer1, self.layer2, self.layer3, self.layer4 = net.layer1, net.layer2, net.layer3, net.layer4
        _set_stride(self.layer4[0], "conv2", 1)
        self.set_stride_on(stride_on)

    def set_stride_on(self, stride_on: str) -> None:
        """Set which convolution strides in stages 2 and 3."""
        if stride_on not in STRIDE_ON:
            raise unknown_name("stride_on", stride_on, STRIDE_ON)
        self.stride_on = stride_on
        for stage in (self.layer2, self.layer3):
            _set_stride(stage[0], stride_on, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the maps of normalized images [B, 3, H, W] at stride 4 and 16."""
        skip = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return skip, self.layer4(self.layer3(self.layer2(skip)))

    def first_layers(self) -> Iterable[nn.Module]:
        """First convolution."""
        return (self.conv1,)


def _set_stride(block: Any, strided: str, stride: int) -> None:
    for name in STRIDE_ON:
        conv = getattr(block, name)
        conv.stride = (stride, stride) if name == strided else (1, 1)
    block.downsample[0].stride = (stride, stride)
