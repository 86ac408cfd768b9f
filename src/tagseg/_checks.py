"""Checks of what callers pass in: each failure is one line that names the value and what is allowed."""

from collections.abc import Iterable
from difflib import get_close_matches

import torch
from torch import Tensor


def unknown_name(
    kind: str, name: object, known: Iterable[str], *, more: str = "", hidden: Iterable[str] = ()
) -> ValueError:
    """The error for a name that is not in a registry: it lists the known names and the nearest of them.

    Args:
        kind: what the name should have named.
        name: what was given.
        known: the names to list.
        more: further names in words, for registries too long to list.
        hidden: names that are not listed but may be the nearest.
    """
    known = sorted(known)
    nearest = get_close_matches(str(name), [*known, *hidden], n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return ValueError(f"unknown {kind} {name!r}; known: {', '.join(known)}{more}.{hint}")


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
