"""Checks of what callers pass in: each failure is one line that names the value and what is allowed."""

import torch
from torch import Tensor


def require_finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and infinity, which would spread over the whole result."""
    if tensor.is_meta:
        return
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ValueError(f"{name} has {bad} NaN or infinite values of {tensor.numel()}; every value must be finite")


def require_shape(name: str, tensor: object, expected: str) -> None:
    """Refuse what is no tensor, or one of another number of dimensions than `expected`, such as "[B, C, H, W]"."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor {expected}, got {type(tensor).__name__}; torch.from_numpy makes one")
    if tensor.dim() != expected.count(",") + 1:
        raise ValueError(f"{name} must be {expected}, got a tensor of shape {list(tensor.shape)}")
