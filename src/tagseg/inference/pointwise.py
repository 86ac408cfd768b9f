"""1x1 convolutions as the matrix products that they are, for GPUs."""

import torch.nn.functional as F
from torch import Tensor, nn


class Pointwise(nn.Module):
    """A 1x1 convolution as one product of all pixels with the weights, which adds the bias in passing.

    A convolution has to be planned anew for each size of picture, which takes a GPU's host longer than the product
    takes the GPU; and its bias is a second pass over the result.

    Args:
        conv: a convolution that `fits`.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    @staticmethod
    def fits(conv: nn.Conv2d) -> bool:
        """Whether a convolution looks at each pixel by itself."""
        return conv.kernel_size == (1, 1) and conv.groups == 1 and conv.padding == (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve maps, [B, C, h, w], in the channels-last layout."""
        down, across = self.conv.stride
        pixels = x[..., ::down, ::across].permute(0, 2, 3, 1)
        product = F.linear(pixels.flatten(0, 2), self.conv.weight.flatten(1), self.conv.bias)
        return product.unflatten(0, pixels.shape[:3]).permute(0, 3, 1, 2)  # type: ignore[no-any-return]
