"""Submodules of a network as torch.fx graphs, in which the users of every value are known."""

import operator
from collections.abc import Callable, Iterator
from copy import deepcopy
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tagseg.models.backbones.efficientnet_lite import same_padded_convolutions
from tagseg.models.backbones.timm_cnn import timm_layer
from tagseg.models.base import Network

_Module = TypeVar("_Module", bound=nn.Module)
_PROBE_SIDE = 64
# torch.fx patches nn.Module while it traces: two threads that trace would restore it in the wrong order. A thread that
# only predicts is not affected, since `_Tracer.call_module` leaves calls of other networks alone.
_trace_lock = Lock()


def trace_submodules(network: Network) -> list[fx.GraphModule]:
    """Replace the submodules of a network in evaluation mode by graphs of torch's own modules and functions.

    A submodule whose control flow depends on its input has no graph, but its children may have one. Python code can
    hide such a dependence from the tracer, so the network has to run the same operations as before, or it is left
    untraced.

    Returns:
        All graphs of the network.
    """
    traced = deepcopy(network)
    _trace(traced)
    try:
        is_same = _operations(traced) == _operations(network)
    except Exception:  # any code may run here, such as an untraced module that inspects a traced child
        is_same = False
    if is_same:
        _trace(network)
    return [module for module in network.modules() if isinstance(module, fx.GraphModule)]


def single_calls(graph: fx.GraphModule, *types: type[_Module]) -> Iterator[tuple[fx.Node, _Module]]:
    """Calls of modules of exactly these types, without modules that are called more than once."""
    calls = [node for node in graph.graph.nodes if node.op == "call_module"]
    targets = [node.target for node in calls]
    for node in calls:
        module = graph.get_submodule(node.target)
        if isinstance(module, types) and type(module) in types and targets.count(node.target) == 1:
            yield node, module


def redirect_users(node: fx.Node, *, by: fx.Node) -> None:
    """Redirect the node's users to `by` and erase it."""
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)


def clean_up(graph: fx.GraphModule) -> None:
    """Delete modules that a changed graph no longer calls, and recompile it."""
    graph.delete_all_unused_submodules()
    graph.recompile()


def _trace(network: Network) -> None:
    _split_norm_activations(network)
    _trace_children(network)


def _trace_children(module: nn.Module) -> None:
    for name, child in list(module.named_children()):
        if _Tracer.is_leaf(child):
            continue
        try:
            with _trace_lock:
                graph = _Tracer().trace(child)
            module.set_submodule(name, fx.GraphModule(child, graph))
        except Exception:  # any code may run here, and what it raises when it cannot be traced is up to it
            _trace_children(child)


def _split_norm_activations(network: Network) -> None:
    """Split timm's batch norms with an activation into two modules."""
    for name, module in list(network.named_modules()):
        if type(module) in timm_layer("BatchNormAct2d"):
            norm = nn.BatchNorm2d(module.num_features, module.eps, affine=False, device="meta").eval()
            norm.weight, norm.bias = module.weight, module.bias
            norm.running_mean, norm.running_var = module.running_mean, module.running_var
            norm.num_batches_tracked = module.num_batches_tracked
            norm.affine = module.affine
            network.set_submodule(name, nn.Sequential(norm, module.drop, module.act))


class _Proxy(fx.Proxy):
    """Proxy that records `+=` as an in-place sum; torch's own records a new tensor."""

    def __iadd__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})


class _Tracer(fx.Tracer):
    """Tracer whose leaves are torch's own modules, and convolutions whose padding depends on the input size."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    @staticmethod
    def is_leaf(module: nn.Module) -> bool:
        if type(module) in same_padded_convolutions():
            return True
        return module.__module__.startswith("torch.nn") and not isinstance(
            module, nn.Sequential | nn.ModuleList | nn.ModuleDict
        )

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002  torch.fx's signature
        return self.is_leaf(m)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Trace through modules without a path: a slice of layers, or a network that another thread runs."""
        try:
            self.path_of_module(m)
        except NameError:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)


class _OperationLog(TorchDispatchMode):
    """Log of the operations that run, and of the shapes of their arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[str, list[torch.Size]]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, which takes four seconds."""
        return False

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        shapes = [value.shape for value in tree_iter((args, kwargs)) if isinstance(value, Tensor)]
        self.operations.append((str(func), shapes))
        return func(*args, **(kwargs or {}))


def _operations(network: Network) -> list[tuple[str, list[torch.Size]]]:
    """Operations of a network on a small image.

    They are computed: the meta device would import torch's compiler, which takes four seconds.
    """
    log = _OperationLog()
    with log, torch.no_grad():
        network(torch.zeros(2, network.config.in_channels, _PROBE_SIDE, _PROBE_SIDE, device=network.mean.device))
    return log.operations
