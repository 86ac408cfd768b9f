"""The parts of a network as graphs of operations, where it can be seen who reads what."""

import operator
from collections.abc import Callable, Iterator
from copy import deepcopy
from threading import Lock
from typing import Any, TypeVar

import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tagseg.models.network import Network

_Kind = TypeVar("_Kind", bound=nn.Module)
_PROBE_SIDE = 64
# torch.fx changes nn.Module while it traces: two threads that trace would change it back in the wrong order. A thread
# that only predicts is not stopped; `_Tracer.call_module` leaves its calls as they are.
_tracing = Lock()


def draw_graphs(network: Network) -> None:
    """Replace the parts of a network in evaluation mode by graphs of torch's own modules and of functions.

    A part that decides something by its input has no graph; its children may have one. Python code can hide from a
    tracer that it decides, so the network has to compute the same as before, or it stays as it is.
    """
    plain = deepcopy(network).to("meta")
    drawn = deepcopy(plain)
    _draw(drawn)
    try:
        same = _operations(drawn) == _operations(plain)
    except Exception:  # any code may run here, such as a part without a graph that looks into a child that now is one
        same = False
    if same:
        _draw(network)


def graphs_of(network: nn.Module) -> Iterator[fx.GraphModule]:
    """All graphs below a network."""
    return (module for module in network.modules() if isinstance(module, fx.GraphModule))


def sole_calls(graph: fx.GraphModule, *kinds: type[_Kind]) -> Iterator[tuple[fx.Node, _Kind]]:
    """The calls of modules of exactly these classes, without the modules that are called more than once."""
    calls = [node for node in graph.graph.nodes if node.op == "call_module"]
    targets = [node.target for node in calls]
    for node in calls:
        module = graph.get_submodule(node.target)
        if isinstance(module, kinds) and type(module) in kinds and targets.count(node.target) == 1:
            yield node, module


def bypass(node: fx.Node, by: fx.Node) -> None:
    """Let all who read a node read another one, and remove it."""
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)


def tidy(graph: fx.GraphModule) -> None:
    """Forget the modules that a changed graph no longer calls, and write its code anew."""
    graph.delete_all_unused_submodules()
    graph.recompile()


def _draw(network: Network) -> None:
    _separate_activations(network)
    _draw_children(network)


def _draw_children(module: nn.Module) -> None:
    for name, child in list(module.named_children()):
        if _Tracer.is_leaf(child):
            continue
        try:
            with _tracing:
                graph = _Tracer().trace(child)
            module.set_submodule(name, fx.GraphModule(child, graph))
        except Exception:  # any code may run here, and what it raises when it cannot be traced is up to it
            _draw_children(child)


def _separate_activations(network: Network) -> None:
    """Take timm's batch norms with an activation apart."""
    for name, both in list(network.named_modules()):
        if type(both) is BatchNormAct2d:
            norm = nn.BatchNorm2d(both.num_features, both.eps, affine=False, device="meta").eval()
            norm.weight, norm.bias = both.weight, both.bias
            norm.running_mean, norm.running_var = both.running_mean, both.running_var
            norm.num_batches_tracked = both.num_batches_tracked
            norm.affine = both.affine
            network.set_submodule(name, nn.Sequential(norm, both.drop, both.act))


class _Value(fx.Proxy):
    """What a tracer gives in place of a tensor; torch's own would make a sum in a new place of `+=`."""

    def __iadd__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})


class _Tracer(fx.Tracer):
    """Traces down to torch's own modules, and to convolutions whose padding depends on the image's size."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Value(node, self)

    @staticmethod
    def is_leaf(module: nn.Module) -> bool:
        if type(module) is Conv2dSame:
            return True
        return module.__module__.startswith("torch.nn") and not isinstance(
            module, nn.Sequential | nn.ModuleList | nn.ModuleDict
        )

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002  torch.fx asks so
        return self.is_leaf(m)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """See through what is not a part by name: a slice of layers, or a network that another thread runs."""
        try:
            self.path_of_module(m)
        except NameError:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)


class _Operations(TorchDispatchMode):
    """Writes down which operations are computed, and of which shapes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[str, list[torch.Size]]] = []

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen.append((str(func), [value.shape for value in tree_iter((args, kwargs)) if isinstance(value, Tensor)]))
        return func(*args, **(kwargs or {}))


def _operations(network: Network) -> list[tuple[str, list[torch.Size]]]:
    """What a network on the meta device, where nothing is computed, does with an image."""
    operations = _Operations()
    with operations, torch.no_grad():
        network(torch.zeros(2, network.config.in_channels, _PROBE_SIDE, _PROBE_SIDE, device="meta"))
    return operations.seen
