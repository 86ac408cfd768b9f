"""Whether Triton kernels can run."""

import os
import shutil
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def triton_runs(tensor: Tensor) -> bool:
    """Whether Triton kernels can work on a tensor: it is on an NVIDIA or AMD GPU, and Triton finds what it needs."""
    return tensor.is_cuda and triton_is_here()


@cache
def triton_is_here() -> bool:
    """Whether Triton is installed, which torch does on Linux, with the C compiler that it needs at run time."""
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return find_spec("triton") is not None and any(name and shutil.which(name) for name in compilers)


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile can make GPU kernels here."""
    return device.type == "cuda" and triton_is_here()
