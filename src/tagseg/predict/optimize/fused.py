"""Convolutions that include the sum and the ReLU that follow them: one pass instead of three."""

import operator
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.conv2d_same import Conv2dSame
from torch import fx, nn

from tagseg.predict.optimize.graphs import bypass, sole_calls, tidy
from tagseg.predict.optimize.unplanned import Unplanned

_SUMS = (operator.add, operator.iadd, torch.add)
_LIMITS = {F.relu: inf, torch.relu: inf, nn.ReLU: inf, F.relu6: 6.0, nn.ReLU6: 6.0}  # the most that each lets through


def fuse(graph: fx.GraphModule) -> None:
    """Make one module of a convolution and the sum, the ReLU or both behind it, where nobody reads what is between."""
    for conv, module in list(sole_calls(graph, nn.Conv2d, Conv2dSame)):
        if not Unplanned.fits(module) or conv.kwargs:
            continue
        total = conv.next
        if _adds(graph, total, conv):
            conv.args = (*conv.args, *(part for part in total.args if part is not conv))
            bypass(total, conv)
        readers = list(conv.users)
        limit = _limit(graph, readers[0]) if len(readers) == 1 else None
        if limit is not None:
            bypass(readers[0], conv)
        graph.set_submodule(str(conv.target), Unplanned(module, limit=limit))
    tidy(graph)


def _adds(graph: fx.GraphModule, node: fx.Node, conv: fx.Node) -> bool:
    """Whether a node adds another module's result to a convolution's, which only it reads.

    It has to be the next one: then the other result is there before the convolution, and nothing changes in between.
    """
    if node.target not in _SUMS or list(conv.users) != [node] or node.kwargs or len(node.args) != 2:
        return False
    first, second = node.args
    other = second if first is conv else first
    if not isinstance(other, fx.Node) or other is conv or other.op != "call_module":
        return False
    # `a += conv(b)` changes a, which may be part of something that others read; a convolution's result is not.
    made = graph.get_submodule(str(other.target))
    return (
        node.target is not operator.iadd
        or first is conv
        or (isinstance(made, nn.Conv2d | Unplanned) and len(other.users) == 1)
    )


def _limit(graph: fx.GraphModule, node: fx.Node) -> float | None:
    """The most that a ReLU lets through; None for what is none."""
    kind: Any = type(graph.get_submodule(str(node.target))) if node.op == "call_module" else node.target
    return _LIMITS.get(kind)
