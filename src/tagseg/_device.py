"""Which device is meant, and small things on their way to it."""

from collections.abc import Sequence

import torch
from torch import Tensor


def pick_device(name: str) -> torch.device:
    """A torch device by name; `auto` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"unknown device {name!r}; known: auto, cpu, cuda, cuda:1 and so on") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} was asked for, but torch sees no GPU here; use auto or cpu")
    return device


def to_device(numbers: Sequence[object], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of a few numbers, without waiting until the device has done all it was told before."""
    # CUDA has taken a copy when this returns; other devices may read the numbers when they are gone.
    return torch.tensor(numbers, dtype=dtype).to(device, non_blocking=device.type == "cuda")
