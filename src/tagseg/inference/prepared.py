"""A private copy of a network that predicts faster than the one that learns, with the same results up to rounding."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tagseg._kernels import triton_runs
from tagseg.inference.dilated import Dilated
from tagseg.inference.unplanned import Unplanned
from tagseg.models.network import Network

_PROBE_SIDE = 64


def prepare(network: Network, *, half: bool) -> Network:
    """A copy in evaluation mode with batch norms as part of the convolutions, in the layout that these like best.

    Args:
        network: on its device; it is not changed, and what it learns later the copy does not know.
        half: keep the convolutions' weights in bfloat16, for use under autocast, which would otherwise cast them on
            every call.
    """
    copy = deepcopy(network).eval().requires_grad_(False)
    for conv_name, norm_name in _foldable(copy):
        conv, norm = copy.get_submodule(conv_name), copy.get_submodule(norm_name)
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        copy.set_submodule(conv_name, fuse_conv_bn_eval(conv, norm))
        copy.set_submodule(norm_name, nn.Identity())
    for name, module in list(copy.named_modules()):
        if half and isinstance(module, nn.Conv2d):
            module.to(torch.bfloat16)
        if type(module) is nn.Conv2d and triton_runs(module.weight) and Unplanned.fits(module):
            copy.set_submodule(name, Unplanned(module))
        elif type(module) is nn.Conv2d and Dilated.fits(module):
            copy.set_submodule(name, Dilated(module))
    return copy.to(memory_format=torch.channels_last)


def _foldable(network: Network) -> list[tuple[str, str]]:
    """The names of the convolutions that only a batch norm reads, each with that batch norm.

    Who reads what is seen where nothing is computed, on the meta device. Only torch's own classes count: others, such
    as timm's batch norms with an activation, may do more than their parameters say.
    """
    traced = deepcopy(network).to("meta")
    names = {module: name for name, module in traced.named_modules()}
    calls: dict[nn.Module, int] = dict.fromkeys(names, 0)
    made: dict[int, tuple[nn.Module, Tensor]] = {}  # holds on to the tensors, so that no two have one ID
    pairs: list[tuple[nn.Module, nn.Module, int]] = []
    readers = _Readers()

    def after_conv(conv: nn.Module, _: Any, result: Tensor) -> None:
        calls[conv] += 1
        made[id(result)] = conv, result
        readers.counts[id(result)] = 0

    def before_norm(norm: nn.Module, args: tuple[Tensor]) -> None:
        calls[norm] += 1
        if id(args[0]) in made:
            pairs.append((made[id(args[0])][0], norm, id(args[0])))

    for module in names:
        if type(module) is nn.Conv2d:
            module.register_forward_hook(after_conv)
        elif type(module) is nn.BatchNorm2d:
            module.register_forward_pre_hook(before_norm)
    with readers, torch.no_grad():
        traced(torch.zeros(1, network.config.in_channels, _PROBE_SIDE, _PROBE_SIDE, device="meta"))
    return [
        (names[conv], names[norm])
        for conv, norm, result in pairs
        if calls[conv] == calls[norm] == readers.counts[result] == 1
    ]


class _Readers(TorchDispatchMode):
    """Counts how many operations read each tensor that it was told of."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for value in tree_iter((args, kwargs)):
            if id(value) in self.counts:
                self.counts[id(value)] += 1
        return func(*args, **(kwargs or {}))
