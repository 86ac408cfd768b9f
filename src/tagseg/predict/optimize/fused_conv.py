"""Fused convolution for GPUs: a convolution with the sum and ReLU behind it as one operation for every image size."""

import operator
from collections.abc import Iterable
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tagseg._device import triton_available
from tagseg.models.backbones.efficientnet_lite import same_padded_convolutions
from tagseg.models.base import Network
from tagseg.predict.optimize.graph import clean_up, redirect_users, single_calls

_MIN_CHANNELS = 16  # with fewer, the unfolded patches themselves are small
_SUMS = (operator.add, operator.iadd, torch.add)
_RELU_LIMITS = {F.relu: inf, torch.relu: inf, nn.ReLU: inf, F.relu6: 6.0, nn.ReLU6: 6.0}  # highest output of each


class FusedConv2d(nn.Module):
    """A convolution as a product of patches with weights, followed by an optional sum and ReLU.

    Args:
        conv: Convolution that `supports` accepts, with its weights on a GPU.
        limit: Highest output of the ReLU behind it, infinite for the usual one; None without a ReLU.
    """

    def __init__(self, conv: nn.Conv2d, *, limit: float | None = None) -> None:
        super().__init__()
        assert not isinstance(conv.padding, str)
        self.kernel_size, self.stride, self.padding, self.dilation = (
            (values[0], values[1]) for values in (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
        )
        self.same_padding = isinstance(conv, same_padded_convolutions())
        self.depthwise = _is_depthwise(conv)
        self.pointwise = self.kernel_size == self.stride == (1, 1) and self.padding == (0, 0)
        self.limit = limit
        # One column for each output channel, with the input channels of a tap side by side as in channels-last maps.
        self.matrix = nn.Parameter(conv.weight.permute(2, 3, 1, 0).flatten(0, 2).contiguous(), requires_grad=False)
        self.bias = conv.bias
        self.kernel = None
        if (self.depthwise or conv.in_channels >= _MIN_CHANNELS) and triton_available(conv.weight):
            from tagseg.predict.optimize._fused_conv_triton import convolve  # Triton is not installed everywhere

            self.kernel = convolve

    @staticmethod
    def supports(conv: nn.Conv2d) -> bool:
        """Whether a convolution is ordinary or depthwise, and padded by zeros if at all."""
        return (
            type(conv) in (nn.Conv2d, *same_padded_convolutions())
            and (conv.groups == 1 or _is_depthwise(conv))
            and conv.padding_mode == "zeros"
            and not isinstance(conv.padding, str)
        )

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """Convolve maps.

        Args:
            input: Maps, [B, C, h, w], channels last; named as in torch.
            residual: Added to the output, before the ReLU.
        """
        if self.kernel is not None:
            return self.kernel(input, self, residual)
        patches = self._patches(input)
        if self.depthwise:
            product = (patches.unflatten(3, self.matrix.shape) * self.matrix).sum(3)
            product = product if self.bias is None else product + self.bias
        else:
            product = F.linear(patches, self.matrix.T, self.bias)
        output = product.permute(0, 3, 1, 2)
        if residual is not None:
            output = output + residual
        return self.activate(output)

    def activate(self, output: Tensor) -> Tensor:
        """Apply the ReLU, if there is one, in place."""
        return output if self.limit is None else output.clamp_(0, self.limit)

    def output_geometry(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Padding at the top and left, and height and width of the output."""
        (top, out_height), (left, out_width) = (self._along(axis, side) for axis, side in enumerate((height, width)))
        return (top, left), (out_height, out_width)

    def _along(self, axis: int, side: int) -> tuple[int, int]:
        stride, extent, padding = self.stride[axis], self._extent(axis), self.padding[axis]
        if not self.same_padding:
            return padding, (side + 2 * padding - extent) // stride + 1
        out_side = -(-side // stride)
        return max((out_side - 1) * stride + extent - side, 0) // 2, out_side

    def _extent(self, axis: int) -> int:
        return (self.kernel_size[axis] - 1) * self.dilation[axis] + 1

    def _patches(self, x: Tensor) -> Tensor:
        """Input of each output pixel, [B, h, w, taps * C]."""
        paddings, out_sides = self.output_geometry(x.shape[2], x.shape[3])
        margins: list[int] = []
        for axis, (padding, out_side) in enumerate(zip(paddings, out_sides, strict=True)):
            covered = (out_side - 1) * self.stride[axis] + self._extent(axis)
            margins = [padding, covered - padding - x.shape[2 + axis], *margins]
        padded = F.pad(x, margins)
        for axis, (dilation, stride) in enumerate(zip(self.dilation, self.stride, strict=True)):
            padded = padded.unfold(2 + axis, self._extent(axis), stride)[..., ::dilation]
        return padded.permute(0, 2, 3, 4, 5, 1).flatten(3)


def fuse_convolutions(network: Network, graphs: Iterable[fx.GraphModule]) -> None:
    """Replace the convolutions of a network by fused ones, with the sums and ReLUs behind them where they are traced.

    Args:
        network: Network in evaluation mode.
        graphs: Its traced submodules.
    """
    for graph in graphs:
        _fuse_graph(graph)
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d) and FusedConv2d.supports(child):
                parent.add_module(name, FusedConv2d(child))


def _fuse_graph(graph: fx.GraphModule) -> None:
    """Fuse a convolution with the sum, the ReLU or both behind it, where nothing else uses what is between."""
    for conv, module in list(single_calls(graph, nn.Conv2d, *same_padded_convolutions())):
        if not FusedConv2d.supports(module) or conv.kwargs:
            continue
        following = conv.next
        if _is_residual_sum(graph, following, conv):
            conv.args = (*conv.args, *(term for term in following.args if term is not conv))
            redirect_users(following, by=conv)
        users = list(conv.users)
        limit = _relu_limit(graph, users[0]) if len(users) == 1 else None
        if limit is not None:
            redirect_users(users[0], by=conv)
        graph.set_submodule(str(conv.target), FusedConv2d(module, limit=limit))
    clean_up(graph)


def _is_residual_sum(graph: fx.GraphModule, node: fx.Node, conv: fx.Node) -> bool:
    """Whether a node adds another module's output to that of a convolution without other users.

    It has to be the next node: then the other term exists before the convolution, and nothing changes in between.
    """
    if node.target not in _SUMS or list(conv.users) != [node] or node.kwargs or len(node.args) != 2:
        return False
    first, second = node.args
    other = second if first is conv else first
    if not isinstance(other, fx.Node) or other is conv or other.op != "call_module":
        return False
    # `a += conv(b)` changes a, which may be a view of something with other users; a convolution's output is not.
    module = graph.get_submodule(str(other.target))
    return (
        node.target is not operator.iadd
        or first is conv
        or (isinstance(module, nn.Conv2d | FusedConv2d) and len(other.users) == 1)
    )


def _relu_limit(graph: fx.GraphModule, node: fx.Node) -> float | None:
    """Highest output of a ReLU; None for other operations."""
    operation: Any = type(graph.get_submodule(str(node.target))) if node.op == "call_module" else node.target
    return _RELU_LIMITS.get(operation)


def _is_depthwise(conv: nn.Conv2d) -> bool:
    return 1 < conv.groups == conv.in_channels == conv.out_channels
