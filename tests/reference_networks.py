"""Networks with the generated weights that the published implementation's golden values were computed with."""

import zlib
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import tagseg
from tagseg.models import Network
from tagseg.models.reference import reference_name

Module = TypeVar("Module", bound=nn.Module)
BACKBONES = ("wideresnet38", "vgg16", "resnet50", "resnet101")


def weights_by_name(name: str, shape: torch.Size) -> Tensor:
    """Generate a tensor from its name and shape."""
    draws = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFFFFFF).standard_normal(tuple(shape))
    z = torch.from_numpy(draws.astype(np.float32))
    if name.endswith((".bias", ".running_mean")):
        return 0.1 * z
    if name.endswith(".running_var"):
        return 1 + 0.1 * z.abs()
    return z * 0.8 * (2 / z[0].numel()) ** 0.5 if z.dim() == 4 else 1 + 0.1 * z


def fill(
    module: Module, rename: Callable[[str], str] = lambda name: name, *, prefix: str = "", backbone: str = ""
) -> Module:
    """Fill a module with the weights of its tensors' published names."""
    state = {
        name: weights_by_name(rename(reference_name(prefix + name, backbone)), tensor.shape)
        for name, tensor in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    module.load_state_dict(state, strict=False)
    return module


@cache
def reference_network(backbone: str, kind: str) -> Network:
    """Build the method (`ae`) or the CAM baseline (`bsl`) with a backbone of the paper, in evaluation mode."""
    network: Network = (
        tagseg.build_model(backbone, 20, finetune=True)
        if kind == "ae"
        else tagseg.build_cam(backbone, 20, finetune=True)
    )
    # The published code stores the baseline's classifier under three names, and loads this one last.
    fill(network, lambda name: "mask_branch.0.weight" if name == "fc8.weight" else name, backbone=backbone)
    return network.eval()
