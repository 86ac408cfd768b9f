"""Whether Triton kernels can run, and how they are started."""

import os
import shutil
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor


def triton_runs(tensor: Tensor) -> bool:
    """Whether Triton kernels can work on a tensor: it is on an NVIDIA or AMD GPU, and Triton finds what it needs."""
    return tensor.is_cuda and triton_is_here()


@cache
def triton_is_here() -> bool:
    """Whether Triton is installed, which torch does on Linux, with the C compiler that it needs at run time."""
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return find_spec("triton") is not None and any(name and shutil.which(name) for name in compilers)


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    arguments: Sequence[object],
    kept: dict[Hashable, Any],
    form: Hashable,
    **options: object,
) -> Callable[[], object]:
    """Start a Triton kernel on the current GPU.

    To find the compiled kernel that fits all arguments takes Triton longer than a small one runs: it is kept.

    Args:
        kernel: what `triton.jit` made.
        grid: how many programs there are along each axis.
        arguments: all that the kernel takes, in its order.
        kept: the compiled kernels of earlier calls; this one is put there.
        form: whatever of the arguments Triton compiles for and differs between calls that share `kept`.
        options: those of the compilation, such as `num_warps`.

    Returns:
        What starts it again with the same arguments.
    """
    compiled = kept.get(form)
    if compiled is None:
        start = partial(kernel[grid], *arguments, **options)
        kept[form] = start()
    else:
        start = partial(compiled[grid], *arguments)
        start()
    return start


def traits(*tensors: Tensor | None) -> tuple[object, ...]:
    """What Triton compiles for: a tensor's type, whether it is aligned and 32 bits reach its end, or None."""
    return tuple(
        None if tensor is None else (tensor.dtype, tensor.data_ptr() % 16 == 0, tensor.nbytes < 2**31)
        for tensor in tensors
    )


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile can make GPU kernels here."""
    return device.type == "cuda" and triton_is_here()
