"""Dilated convolutions that do not multiply padding: the ASPP reaches farther than most pictures at stride 16."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dilated(nn.Module):
    """A dilated convolution without the taps that see nothing but padding; the same result.

    On a map of 24 x 32, that of a picture of 375 x 500, dilation 36 leaves the central tap of nine, and dilation 24 the
    three of the middle row.

    Args:
        conv: a convolution that `fits`.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    @staticmethod
    def fits(conv: nn.Conv2d) -> bool:
        """Whether a convolution is dilated and has a centre that goes over every pixel."""
        centred = tuple(d * (side // 2) for d, side in zip(conv.dilation, conv.kernel_size, strict=True))
        odd = all(side % 2 for side in conv.kernel_size)
        plain = conv.stride == (1, 1) and conv.padding_mode == "zeros"
        return max(conv.dilation) > 1 and odd and plain and conv.padding == centred

    def forward(self, input: Tensor) -> Tensor:
        """Convolve maps, [B, C, h, w]; the argument has the name that torch gives it."""
        weight, padding = seen_taps(self.conv, input.shape)
        return F.conv2d(input, weight, self.conv.bias, 1, padding, self.conv.dilation, self.conv.groups)


def seen_taps(conv: nn.Conv2d, shape: torch.Size) -> tuple[Tensor, list[int]]:
    """The weights of the taps that see some of maps of a shape, [B, C, h, w], and the padding that is left."""
    taps, padding = [], []
    for size, dilation, side in zip(shape[-2:], conv.dilation, conv.kernel_size, strict=True):
        reach = min(side // 2, (size - 1) // dilation)  # in taps, to either side of the central one
        taps.append(slice(side // 2 - reach, side // 2 + reach + 1))
        padding.append(reach * dilation)
    return conv.weight[:, :, taps[0], taps[1]], padding
