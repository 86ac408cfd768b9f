"""Convolutions for GPUs that any size of picture can go through at once.

cuDNN plans a convolution anew for each size, and photographs come in hundreds of sizes, each seen at several scales:
planning took longer than computing.
"""

import torch.nn.functional as F
from torch import Tensor, nn

_FEW_CHANNELS = 16  # with fewer, the patches themselves are small


class Unplanned(nn.Module):
    """A convolution as a product of pixels, or patches of them, with the weights.

    Args:
        conv: a convolution that `fits`, with its weights where Triton runs.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        assert not isinstance(conv.padding, str)
        self.padding = conv.padding
        # One column for each output, with the channels of a tap side by side, as they lie in a picture.
        self.matrix = nn.Parameter(conv.weight.permute(2, 3, 1, 0).flatten(0, 2).contiguous(), requires_grad=False)

    @staticmethod
    def fits(conv: nn.Conv2d) -> bool:
        """Whether a convolution is an ordinary one: not depthwise, padded by zeros if at all."""
        return conv.groups == 1 and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve maps, [B, C, h, w], in the channels-last layout."""
        conv = self.conv
        if conv.kernel_size == (1, 1) and conv.padding == (0, 0):
            return self._product(x.permute(0, 2, 3, 1)[:, :: conv.stride[0], :: conv.stride[1]])
        if conv.in_channels < _FEW_CHANNELS:
            return self._product(self._patches(x))
        from tagseg.inference._conv_triton import convolve  # not before: Triton is not everywhere

        return convolve(x.to(self.matrix.dtype), self.matrix, conv, self.padding)

    def _product(self, pixels: Tensor) -> Tensor:
        """Multiply pixels or patches, [B, h, w, values], by the weights."""
        result = F.linear(pixels.flatten(0, 2), self.matrix.T, self.conv.bias)
        return result.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)

    def _patches(self, x: Tensor) -> Tensor:
        """All that the convolution sees from each place, [B, h, w, taps * C]."""
        down, across = self.padding
        padded = F.pad(x, (across, across, down, down))
        sides, dilations, strides = self.conv.kernel_size, self.conv.dilation, self.conv.stride
        for axis, (side, dilation, stride) in enumerate(zip(sides, dilations, strides, strict=True)):
            padded = padded.unfold(2 + axis, (side - 1) * dilation + 1, stride)[..., ::dilation]
        return padded.permute(0, 2, 3, 4, 5, 1).flatten(3)
