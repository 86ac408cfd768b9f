"""Fast paths of prediction: a copy of a network that computes the same up to rounding, faster.

Every pass can be switched off (`tagseg.load(..., optimize=False)`, `--no-optimize`), is tested against the plain
network, and is measured against it by `tagseg bench predict`:

- `fold`: batch norms become part of the convolutions before them.
- `fuse`: on a GPU, each convolution with the sum and ReLU behind it is one Triton kernel for every image size. cuDNN
  plans a convolution anew for each size, and photos come in hundreds of sizes at several scales each.
"""

from collections.abc import Collection

import torch
from torch import nn

from tagseg._device import triton_available
from tagseg.errors import unknown_name
from tagseg.models.base import Network, copy_network

PASSES = ("fold", "fuse")

__all__ = ["PASSES", "optimize_network"]


def optimize_network(network: Network, *, bfloat16: bool, passes: bool | Collection[str] = True) -> Network:
    """Copy a network for prediction, in evaluation mode and the channels-last layout.

    Args:
        network: On its device; it is not changed, and the copy does not follow later changes.
        bfloat16: Keep the weights of convolutions in bfloat16, for autocast, which would cast them on every call.
        passes: True for all passes that the device has, False for none, or the names of some. `fuse` includes `fold`.
    """
    copy = copy_network(network).eval().requires_grad_(False)
    if passes is True:
        passes = PASSES if triton_available(copy.mean) else ("fold",)
    passes = passes or ()
    for name in passes:
        if name not in PASSES:
            raise unknown_name("pass", name, PASSES)
    if passes:
        # These import the tracer of torch, which a plain network can do without.
        from tagseg.predict.optimize.fold import fold_batch_norms
        from tagseg.predict.optimize.graph import trace_submodules

        graphs = trace_submodules(copy)
        for graph in graphs:
            fold_batch_norms(graph)
    if bfloat16:
        for module in copy.modules():
            if isinstance(module, nn.Conv2d):
                module.to(torch.bfloat16)
    if "fuse" in passes:
        from tagseg.predict.optimize.fused_conv import fuse_convolutions

        fuse_convolutions(copy, graphs)
    return copy.to(memory_format=torch.channels_last)
