"""Devices, CPU cores, and small tensors on their way to a device."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from tagseg.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """Return a torch device by name; `auto` is the first GPU, or the CPU where there is none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {name!r}; known: auto, cpu, cuda, cuda:1 and so on") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} is not available: torch sees no GPU here", "use auto or cpu")
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
