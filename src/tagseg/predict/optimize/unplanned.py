"""Convolutions for GPUs that any size of image can go through at once.

cuDNN plans a convolution anew for each size, and photographs come in hundreds of sizes, each seen at several scales:
planning took longer than computing.
"""

import torch.nn.functional as F
from timm.layers.conv2d_same import Conv2dSame
from torch import Tensor, nn

from tagseg._triton import triton_available

_FEW_CHANNELS = 16  # with fewer, the patches themselves are small


class Unplanned(nn.Module):
    """A convolution as a product of patches with the weights, and what follows it.

    Args:
        conv: a convolution that `fits`, with its weights on a GPU.
        limit: where a ReLU follows, the most that it lets through; infinite for the usual one.
    """

    def __init__(self, conv: nn.Conv2d, *, limit: float | None = None) -> None:
        super().__init__()
        assert not isinstance(conv.padding, str)
        self.kernel_size, self.stride, self.padding, self.dilation = (
            (values[0], values[1]) for values in (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
        )
        self.same = isinstance(conv, Conv2dSame)
        self.depthwise = _is_depthwise(conv)
        self.pointwise = self.kernel_size == self.stride == (1, 1) and self.padding == (0, 0)
        self.limit = limit
        # One column for each output, with the channels of a tap side by side, as they lie in an image.
        self.matrix = nn.Parameter(conv.weight.permute(2, 3, 1, 0).flatten(0, 2).contiguous(), requires_grad=False)
        self.bias = conv.bias
        self.kernel = None
        if (self.depthwise or conv.in_channels >= _FEW_CHANNELS) and triton_available(conv.weight):
            from tagseg.predict.optimize._conv_triton import convolve  # not before: Triton is not everywhere

            self.kernel = convolve

    @staticmethod
    def fits(conv: nn.Conv2d) -> bool:
        """Whether a convolution reads all channels, or each its own, and is padded by zeros if at all."""
        return (
            type(conv) in (nn.Conv2d, Conv2dSame)
            and (conv.groups == 1 or _is_depthwise(conv))
            and conv.padding_mode == "zeros"
            and not isinstance(conv.padding, str)
        )

    def forward(self, input: Tensor, added: Tensor | None = None) -> Tensor:
        """Convolve maps, [B, C, h, w], in the channels-last layout.

        Args:
            input: the maps, under the name that torch gives them.
            added: what is added to the result, before the ReLU.
        """
        if self.kernel is not None:
            return self.kernel(input, self, added)
        patches = self._patches(input)
        if self.depthwise:
            product = (patches.unflatten(3, self.matrix.shape) * self.matrix).sum(3)
            product = product if self.bias is None else product + self.bias
        else:
            product = F.linear(patches, self.matrix.T, self.bias)
        result = product.permute(0, 3, 1, 2)
        if added is not None:
            result = result + added
        return self.activate(result)

    def activate(self, result: Tensor) -> Tensor:
        """Apply the ReLU, if there is one, in place."""
        return result if self.limit is None else result.clamp_(0, self.limit)

    def places(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """How many zeros lie above and to the left of a map of this size, and the height and width of the result."""
        (top, down), (left, across) = (self._along(axis, side) for axis, side in enumerate((height, width)))
        return (top, left), (down, across)

    def _along(self, axis: int, side: int) -> tuple[int, int]:
        stride, reach, before = self.stride[axis], self._reach(axis), self.padding[axis]
        if not self.same:
            return before, (side + 2 * before - reach) // stride + 1
        count = -(-side // stride)
        return max((count - 1) * stride + reach - side, 0) // 2, count

    def _reach(self, axis: int) -> int:
        return (self.kernel_size[axis] - 1) * self.dilation[axis] + 1

    def _patches(self, x: Tensor) -> Tensor:
        """All that the convolution sees from each place, [B, h, w, taps * C]."""
        befores, counts = self.places(x.shape[2], x.shape[3])
        margins: list[int] = []
        for axis, (before, count) in enumerate(zip(befores, counts, strict=True)):
            seen = (count - 1) * self.stride[axis] + self._reach(axis)
            margins = [before, seen - before - x.shape[2 + axis], *margins]
        padded = F.pad(x, margins)
        for axis, (dilation, stride) in enumerate(zip(self.dilation, self.stride, strict=True)):
            padded = padded.unfold(2 + axis, self._reach(axis), stride)[..., ::dilation]
        return padded.permute(0, 2, 3, 4, 5, 1).flatten(3)


def _is_depthwise(conv: nn.Conv2d) -> bool:
    return 1 < conv.groups == conv.in_channels == conv.out_channels
