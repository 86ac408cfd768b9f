"""Networks with the weights that the published implementation's golden values were made with: a rule, no file."""

import zlib
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import tagseg
from tagseg.models import Network
from tagseg.models.reference_names import reference_name

Module = TypeVar("Module", bound=nn.Module)
BACKBONES = ("wideresnet38", "vgg16", "resnet50", "resnet101")


def weights_by_name(name: str, shape: torch.Size) -> Tensor:
    """A tensor that depends on its name and shape alone."""
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
    """Give every tensor of a module the weights of its published name."""
    state = {
        name: weights_by_name(rename(reference_name(prefix + name, backbone)), tensor.shape)
        for name, tensor in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    module.load_state_dict(state, strict=False)
    return module


@cache
def published_network(backbone: str, kind: str) -> Network:
    """The method (`ae`) or the CAM baseline (`bsl`) on a backbone of the paper, in evaluation mode."""
    network: Network = tagseg.build_model(backbone, 20) if kind == "ae" else tagseg.build_cam(backbone, 20)
    # The baseline's classifier is stored under three names; the last one that is loaded counts.
    fill(network, lambda name: "mask_branch.0.weight" if name == "fc8.weight" else name, backbone=backbone)
    return network.eval()
