"""The convolution that joins deep features with the skip's, before the deep ones are enlarged: for CPUs."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tagseg.models.network import enlarge, weights_between
from tagseg.models.segmenter import Segmenter

_ROWS = 16  # that are enlarged together
_FLOAT32 = 5  # how much longer a product in float32 takes than one of a convolution in half precision


class EarlyJoin(nn.Module):
    """A 3x3 convolution of enlarged deep features beside the skip's, and a ReLU; the same result.

    A convolution and an enlargement are both sums, so their order does not matter: each of the nine taps multiplies the
    small map, which has a sixteenth of the pixels, and what it gives is enlarged and shifted to its place.

    Args:
        conv: the convolution, whose first inputs are the deep features.
        deep: how many those are.
    """

    def __init__(self, conv: nn.Conv2d, deep: int) -> None:
        super().__init__()
        self.conv = conv
        self.near = nn.Conv2d(conv.in_channels - deep, conv.out_channels, 3, padding=1)
        self.near.weight = nn.Parameter(conv.weight[:, deep:].clone(), requires_grad=False)
        self.near.bias = conv.bias
        self.taps = nn.Conv2d(deep, 9 * conv.out_channels, 1, bias=False)
        by_tap = conv.weight[:, :deep].permute(2, 3, 0, 1).flatten(0, 2)
        self.taps.weight = nn.Parameter(by_tap[..., None, None].clone(), requires_grad=False)

    @classmethod
    def of(cls, network: Segmenter) -> "EarlyJoin":
        """That of a network in evaluation mode, with the batch norm as part of the convolution."""
        conv, norm, _ = network.fuse
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        return cls(fuse_conv_bn_eval(conv, norm), network.config.width)

    def forward(self, deep: Tensor, skip: Tensor) -> Tensor:
        """Join maps of one picture or several, [B, D, h, w] and [B, S, H, W], to [B, C, H, W]."""
        size = (skip.shape[-2], skip.shape[-1])
        if not self._pays(deep, size):
            return F.relu(self.conv(torch.cat([enlarge(deep, size), skip], dim=1)))
        batch, _, height, width = deep.shape
        said = self.taps(deep).permute(0, 2, 3, 1).view(batch, height, width, 3, 3, -1)
        # Small rows, taps' rows, small columns, taps' columns, in one copy.
        said = said.permute(0, 1, 3, 2, 4, 5).to(torch.float32, memory_format=torch.contiguous_format)
        near: Tensor = self.near(skip).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", enabled=False):
            wide = torch.matmul(_shares(width, size[1]), said.flatten(3, 4).flatten(0, 2))
            _stretch_onto(near.permute(0, 2, 3, 1).view(batch, size[0], -1), wide.view(batch, 3 * height, -1))
        return near

    def _pays(self, deep: Tensor, size: tuple[int, int]) -> bool:
        """Whether it takes less time: to enlarge a large map by dense matrices takes more than it saves."""
        channels, height, width = deep.shape[1:]
        enlarging = 9 * height * width * size[1] + 3 * height * size[0] * size[1]
        return 9 * channels * height * width + _FLOAT32 * enlarging < 9 * channels * size[0] * size[1]


def _stretch_onto(near: Tensor, said: Tensor) -> None:
    """Enlarge rows, add up their taps, [B, 3 h, M], and what is there, [B, H, M], and apply a ReLU.

    A few rows at a time: they depend on few of the small ones, and new memory costs more than it takes to fill it.
    """
    shares = _shares(said.shape[1] // 3, near.shape[1])
    for some, own in zip(shares.split(_ROWS), near.split(_ROWS, dim=1), strict=True):
        seen = some.any(0).nonzero()
        needed = slice(int(seen[0]), int(seen[-1]) + 1)
        own.copy_(torch.matmul(some[:, needed], said[:, needed]).add_(own).relu_())


def _shares(small: int, big: int) -> Tensor:
    """What each tap at each of `small` points gives to each of `big` points, [big, small * 3].

    The first tap gives to the place after it, the last to the one before; beyond the border there is nothing.
    """
    weights = F.pad(weights_between(small, big, torch.zeros(())), (0, 0, 1, 1))
    return torch.stack([weights[place : place + big] for place in range(3)], dim=2).flatten(1)
