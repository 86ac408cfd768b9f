"""Small things on their way to a GPU."""

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(numbers: Sequence[object], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of a few numbers, without waiting until the device has done all it was told before."""
    # CUDA has taken a copy when this returns; other devices may read the numbers when they are gone.
    return torch.tensor(numbers, dtype=dtype).to(device, non_blocking=device.type == "cuda")
