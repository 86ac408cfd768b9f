"""How close two results are."""

import torch
from torch import Tensor


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest expected value."""
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-12))


def assert_close(actual: Tensor, expected: Tensor, *, tolerance: float = 1e-4) -> None:
    """Equal shapes, and equal values up to rounding."""
    assert actual.shape == torch.Size(expected.shape)
    assert relative_error(actual, expected) < tolerance
