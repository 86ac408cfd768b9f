"""Checks of tensor arguments, and conversion between torch tensors and numpy arrays.

A wrong argument is a ValueError of one line that names the argument and what is allowed.
"""

from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

# A torch tensor or a numpy array: a function that takes one kind returns the same kind.
ArrayT = TypeVar("ArrayT", Tensor, "np.ndarray[Any, Any]")


def require_finite(name: str, tensor: Tensor) -> None:
    """Raise a ValueError if a tensor has NaN or infinite values, which would spread over the whole result."""
    if tensor.is_meta:
        return
    count = int((~torch.isfinite(tensor)).sum())
    if count:
        raise ValueError(f"{name} has {count} NaN or infinite values of {tensor.numel()}; every value must be finite")


def require_shape(name: str, tensor: object, expected: str) -> None:
    """Raise a ValueError unless `tensor` is a tensor with the number of dimensions of `expected`, as "[B, C, H, W]"."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor {expected}, got {type(tensor).__name__}; torch.from_numpy makes one")
    if tensor.dim() != expected.count(",") + 1:
        raise ValueError(f"{name} must be {expected}, got a tensor of shape {list(tensor.shape)}")


def to_tensors(**arrays: object) -> list[Tensor]:
    """Convert arguments that are all tensors or all numpy arrays to tensors.

    Args:
        arrays: Arguments by name; None is left out.

    Returns:
        The tensors in the order of the arguments. Arrays are copied only where torch cannot share their memory.
    """
    given = {name: array for name, array in arrays.items() if array is not None}
    for name, array in given.items():
        if not isinstance(array, Tensor | np.ndarray):
            raise ValueError(f"{name} must be a torch tensor or a numpy array, got {type(array).__name__}")
    if len({isinstance(array, Tensor) for array in given.values()}) > 1:
        kinds = ", ".join(f"{name} is a {_kind(array)}" for name, array in given.items())
        raise ValueError(f"torch tensors and numpy arrays cannot be mixed: {kinds}")
    return [array if isinstance(array, Tensor) else _shared(cast(Any, array)) for array in given.values()]


def like(result: Tensor, argument: ArrayT) -> ArrayT:
    """Return a result as the kind of array that an argument is."""
    if isinstance(argument, np.ndarray):
        return result.numpy()
    return result


def _shared(array: "np.ndarray[Any, Any]") -> Tensor:
    # torch cannot represent negative strides and warns about read-only memory.
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _kind(array: object) -> str:
    return "tensor" if isinstance(array, Tensor) else "numpy array"
