"""Fold batch norms into the convolutions before them."""

from torch import fx, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tagseg.models.backbones.efficientnet_lite import same_padded_convolutions
from tagseg.predict.optimize.graph import clean_up, redirect_users, single_calls


def fold_batch_norms(graph: fx.GraphModule) -> None:
    """Fold batch norms, remove identities and dropout, and let a ReLU overwrite a convolution's output."""
    _remove_identities(graph)
    _fold(graph)
    _use_inplace_relu(graph)


def _remove_identities(graph: fx.GraphModule) -> None:
    """Remove modules that do nothing in evaluation mode."""
    for node in graph.graph.nodes:
        if node.op == "call_module" and isinstance(graph.get_submodule(node.target), nn.Identity | _DropoutNd):
            redirect_users(node, by=node.all_input_nodes[0])
    clean_up(graph)


def _fold(graph: fx.GraphModule) -> None:
    """Fold each batch norm whose input is a convolution without other users.

    Only exact classes count: subclasses may do more than their parameters say.
    """
    convs = dict(single_calls(graph, nn.Conv2d, *same_padded_convolutions()))
    for node, norm in single_calls(graph, nn.BatchNorm2d):
        source = node.all_input_nodes[0]
        if source in convs and len(source.users) == 1:
            graph.set_submodule(str(source.target), fuse_conv_bn_eval(convs[source], norm))
            redirect_users(node, by=source)
    clean_up(graph)


def _use_inplace_relu(graph: fx.GraphModule) -> None:
    convs = dict(single_calls(graph, nn.Conv2d, *same_padded_convolutions()))
    for node, _ in single_calls(graph, nn.ReLU):
        source = node.all_input_nodes[0]
        if source in convs and len(source.users) == 1:
            graph.set_submodule(str(node.target), nn.ReLU(inplace=True))
