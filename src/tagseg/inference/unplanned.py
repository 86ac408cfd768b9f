"""Convolutions for GPUs that any size of picture can go through at once.

cuDNN plans a convolution anew for each size, and photographs come in hundreds of sizes, each seen at several scales:
planning took longer than computing.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from tagseg._kernels import triton_runs

_FEW_CHANNELS = 16  # with fewer, the patches themselves are small


class Unplanned(nn.Module):
    """A convolution as a product of patches with the weights, and what follows it.

    Args:
        conv: a convolution that `fits`, with its weights on a GPU.
        relu: whether a ReLU follows.
    """

    def __init__(self, conv: nn.Conv2d, *, relu: bool = False) -> None:
        super().__init__()
        assert not isinstance(conv.padding, str)
        self.kernel_size, self.stride, self.padding, self.dilation = (
            (values[0], values[1]) for values in (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
        )
        self.relu = relu
        # One column for each output, with the channels of a tap side by side, as they lie in a picture.
        self.matrix = nn.Parameter(conv.weight.permute(2, 3, 1, 0).flatten(0, 2).contiguous(), requires_grad=False)
        self.bias = conv.bias
        self.kernel = None
        if conv.in_channels >= _FEW_CHANNELS and triton_runs(conv.weight):
            from tagseg.inference._conv_triton import convolve  # not before: Triton is not everywhere

            self.kernel = convolve

    @staticmethod
    def fits(conv: nn.Conv2d) -> bool:
        """Whether a convolution is an ordinary one: not depthwise, padded by zeros if at all."""
        return conv.groups == 1 and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)

    def forward(self, input: Tensor, added: Tensor | None = None) -> Tensor:
        """Convolve maps, [B, C, h, w], in the channels-last layout.

        Args:
            input: the maps, under the name that torch gives them.
            added: what is added to the result, before the ReLU.
        """
        if self.kernel is not None:
            return self.kernel(input, self, added)
        patches = self._patches(input)
        product = F.linear(patches.flatten(0, 2), self.matrix.T, self.bias)
        result = product.view(*patches.shape[:3], -1).permute(0, 3, 1, 2)
        if added is not None:
            result = result + added
        return result.relu_() if self.relu else result

    def _patches(self, x: Tensor) -> Tensor:
        """All that the convolution sees from each place, [B, h, w, taps * C]."""
        down, across = self.padding
        padded = F.pad(x, (across, across, down, down))
        for axis, (side, dilation, stride) in enumerate(zip(self.kernel_size, self.dilation, self.stride, strict=True)):
            padded = padded.unfold(2 + axis, (side - 1) * dilation + 1, stride)[..., ::dilation]
        return padded.permute(0, 2, 3, 4, 5, 1).flatten(3)
