"""A private copy of a network that predicts faster than the one that learns, with the same results up to rounding."""

from copy import deepcopy

import torch
from timm.layers.conv2d_same import Conv2dSame
from torch import fx, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tagseg._triton import triton_available
from tagseg.models.network import Network
from tagseg.predict.optimize.fused import fuse
from tagseg.predict.optimize.graphs import bypass, draw_graphs, graphs_of, sole_calls, tidy
from tagseg.predict.optimize.unplanned import Unplanned


def prepare(network: Network, *, half: bool, for_gpu: bool | None = None) -> Network:
    """A copy in evaluation mode with batch norms as part of the convolutions, in the layout that these like best.

    Args:
        network: on its device; it is not changed, and what it learns later the copy does not know.
        half: keep the convolutions' weights in bfloat16, for use under autocast, which would otherwise cast them on
            every call.
        for_gpu: the form for GPUs, in which convolutions need no plans and include what follows them; by default
            where Triton runs.
    """
    copy = deepcopy(network).eval().requires_grad_(False)
    for_gpu = triton_available(copy.mean) if for_gpu is None else for_gpu
    draw_graphs(copy)
    for graph in graphs_of(copy):
        _drop_idle(graph)
        _fold_norms(graph)
        _reuse_memory(graph)
    if half:
        for module in copy.modules():
            if isinstance(module, nn.Conv2d):
                module.to(torch.bfloat16)
    if for_gpu:
        for graph in graphs_of(copy):
            fuse(graph)
        for parent in list(copy.modules()):
            for name, child in parent.named_children():
                if isinstance(child, nn.Conv2d) and Unplanned.fits(child):
                    parent.add_module(name, Unplanned(child))
    return copy.to(memory_format=torch.channels_last)


def _drop_idle(graph: fx.GraphModule) -> None:
    """Remove what does nothing in evaluation mode."""
    for node in graph.graph.nodes:
        if node.op == "call_module" and isinstance(graph.get_submodule(node.target), nn.Identity | _DropoutNd):
            bypass(node, node.all_input_nodes[0])
    tidy(graph)


def _fold_norms(graph: fx.GraphModule) -> None:
    """Make batch norms part of the convolutions that nobody else reads.

    Only classes that are known count: others may do more than their parameters say.
    """
    convs = dict(sole_calls(graph, nn.Conv2d, Conv2dSame))
    for node, norm in sole_calls(graph, nn.BatchNorm2d):
        read = node.all_input_nodes[0]
        if read in convs and len(read.users) == 1:
            graph.set_submodule(str(read.target), fuse_conv_bn_eval(convs[read], norm))
            bypass(node, read)
    tidy(graph)


def _reuse_memory(graph: fx.GraphModule) -> None:
    """Let a ReLU write over the convolution's result that nobody else reads."""
    convs = dict(sole_calls(graph, nn.Conv2d, Conv2dSame))
    for node, _ in sole_calls(graph, nn.ReLU):
        read = node.all_input_nodes[0]
        if read in convs and len(read.users) == 1:
            graph.set_submodule(str(node.target), nn.ReLU(inplace=True))
