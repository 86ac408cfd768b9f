"""Convolutions in bfloat16 on a CPU that sort their weights once for pictures of one size, not once for each."""

from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.inference.dilated import Dilated, seen_taps


class Packed(nn.Module):
    """A convolution whose weights are kept in the order in which oneDNN multiplies them, and what follows it.

    torch sorts the weights anew on every call. The best order depends on the size of the maps, and in a wrong one some
    convolutions take many times as long. So the weights are sorted when a size comes for the second time in a row:
    where sizes alternate, nothing is lost. The bits are the same either way, so a picture's result does not depend on
    those before it; float32, where torch does not always use oneDNN, could not promise that.

    Args:
        conv: a convolution that `fits`.
        limit: where a ReLU follows, the most that it lets through; infinite for the usual one.
    """

    def __init__(self, conv: nn.Conv2d, *, limit: float | None = None) -> None:
        super().__init__()
        self.conv = conv
        self.limit = limit
        self.dilated = Dilated.fits(conv)
        self._last: tuple[torch.Size | None, Tensor | None] = (None, None)  # the size, and the weights sorted for it

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": (None, None)}  # sorted weights cannot be copied

    @staticmethod
    def fits(conv: nn.Conv2d) -> bool:
        """Whether oneDNN computes a convolution in bfloat16 here, and torch can keep weights for it."""
        return (
            type(conv) is nn.Conv2d
            and conv.padding_mode == "zeros"
            and not isinstance(conv.padding, str)
            and conv.weight.device.type == "cpu"
            and conv.weight.dtype == torch.bfloat16
            and torch.backends.mkldnn.is_available()
            and hasattr(torch.ops.mkldnn, "_convolution_pointwise")  # torch's compiler uses it, and names it as private
            and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )

    def forward(self, input: Tensor, added: Tensor | None = None) -> Tensor:
        """Convolve maps, [B, C, h, w].

        Args:
            input: the maps, under the name that torch gives them.
            added: what is added to the result, before the ReLU.
        """
        conv, (size, packed) = self.conv, self._last  # read once: another thread may come with another size
        x = input.to(conv.weight.dtype)  # as autocast does
        weight, padding = seen_taps(conv, x.shape) if self.dilated else (conv.weight, conv.padding)
        how = conv.stride, conv.dilation, conv.groups
        if x.shape != size:
            self._last = (x.shape, None)
            return self._finished(F.conv2d(x, weight, conv.bias, conv.stride, padding, *how[1:]), added)
        if packed is None:
            packed = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, *how, x.shape)
            self._last = (size, packed)
        ends = added is None and self.limit is not None  # with the ReLU, in one pass
        relu = ("hardtanh", [0.0, self.limit]) if ends else ("none", [])
        result: Tensor = torch.ops.mkldnn._convolution_pointwise(x, packed, conv.bias, padding, *how, *relu, "")
        return result if ends else self._finished(result, added)

    def _finished(self, result: Tensor, added: Tensor | None) -> Tensor:
        if added is not None:
            alike = (added.shape, added.dtype) == (result.shape, result.dtype)
            result = result.add_(added) if alike else result + added  # new memory costs more than to fill it
        return result if self.limit is None else result.clamp_(0, None if self.limit == inf else self.limit)
