"""Whether Triton kernels can run here."""

import os
import shutil
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def triton_available(tensor: Tensor) -> bool:
    """Whether Triton kernels can run on a tensor: it is on an NVIDIA or AMD GPU and Triton is usable."""
    return tensor.is_cuda and _triton_usable()


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile can generate GPU kernels for a device."""
    return device.type == "cuda" and _triton_usable()


@cache
def _triton_usable() -> bool:
    """Whether Triton is installed (torch installs it on Linux), along with the C compiler that it calls at run time."""
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return find_spec("triton") is not None and any(name and shutil.which(name) for name in compilers)
