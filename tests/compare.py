"""Comparison of tensors."""

import torch
from torch import Tensor


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected value."""
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-12))


def assert_close(actual: Tensor, expected: Tensor, *, tolerance: float = 1e-4) -> None:
    """Assert equal shapes and equal values up to a relative tolerance."""
    assert actual.shape == torch.Size(expected.shape)
    assert relative_error(actual, expected) < tolerance
