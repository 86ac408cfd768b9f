"""Devices and what they can run, CPU cores, and small tensors on their way to a device."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from tagseg.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """Return a torch device by name; `auto` is the first GPU, or the CPU where there is none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps", "xpu"):
        raise ConfigError(f"unknown device {name!r}; known: auto, cpu, cuda, cuda:1 and so on, mps, xpu")
    if device.type == "cuda":  # counted, because a tensor would initialize CUDA, which does not survive a fork
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            gpus = "no GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"
            raise ConfigError(f"device {name!r} is not available: torch sees {gpus} here", "use auto or cpu")
        return device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} is not available: torch cannot use it here", "use auto or cpu") from error
    return device


def to_device(values: Sequence[object], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Create a small tensor on a device without synchronizing with it.

    Args:
        values: Numbers, or nested sequences of numbers.
        dtype: Data type of the tensor.
        device: Device of the tensor.
    """
    # Only CUDA copies the values before it returns; other devices may read them after they are freed.
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=device.type == "cuda")


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # a container may allow fewer cores than the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 natively."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@contextmanager
def explain_out_of_memory(advice: str) -> Iterator[None]:
    """Turn a GPU's lack of memory into an error with advice."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError("the GPU has too little memory", advice) from error


def triton_available(tensor: Tensor) -> bool:
    """Whether Triton kernels can run on a tensor: it is on an NVIDIA or AMD GPU and Triton is usable."""
    return tensor.is_cuda and not _missing_for_triton()


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile can generate GPU kernels for a device."""
    return not triton_obstacle(device)


def triton_obstacle(device: torch.device) -> str:
    """Why Triton kernels cannot run on a device; empty if they can."""
    if device.type == "cuda":
        return _missing_for_triton()
    if torch.cuda.is_available():
        return f"the device is {device.type}, not cuda"
    return "torch sees no GPU" if torch.version.cuda or torch.version.hip else "this torch is built without CUDA"


@cache
def _missing_for_triton() -> str:
    """What is missing of Triton, which torch installs on Linux, and the C compiler that it calls at run time."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return "" if any(name and shutil.which(name) for name in compilers) else "no C compiler: cc, gcc, clang or $CC"
