"""Products with sparse matrices on a GPU, as Triton kernels.

`torch.nn.functional.embedding_bag` gives the same, but leaves most of a GPU idle where channels are few. Every sum is
taken in a fixed order, so the same input gives the same bits. The number of channels has to be a power of two, and the
tensors have to be on the current GPU: Triton starts kernels there.
"""

from collections.abc import Hashable
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from tagseg._kernels import launch, traits

# Numbers that a program holds at once.
_TILE = 1024
# Entries of a row that a program reads at once: of many entries, and of few.
_MANY, _FEW = 32, 4
# Compiled kernels, by what they were compiled for.
_compiled_equal: dict[Hashable, Any] = {}
_compiled_ragged: dict[Hashable, Any] = {}


def equal_rows_product(columns: Tensor, weights: Tensor, dense: Tensor) -> Tensor:
    """The sums of weight * dense[column] over columns and weights [rows, entries]; `dense` is [n, channels]."""
    return _equal_rows_product(columns, weights, dense, None, None)


def softmax_of_product(columns: Tensor, weights: Tensor, dense: Tensor, scores: Tensor, copies: Tensor) -> Tensor:
    """The softmax over the channels of `scores` + the product, where channel k counts `copies[picture, k]` times.

    Args:
        columns: [rows, entries].
        weights: [rows, entries].
        dense: [n, channels].
        scores: [rows, channels].
        copies: [pictures, channels]; the pictures have equally many rows, one picture's after another's.
    """
    return _equal_rows_product(columns, weights, dense, scores, copies)


def weighted_sums(columns: Tensor, starts: Tensor, weights: Tensor, dense: Tensor) -> Tensor:
    """The sums of weight * dense[column] over columns and weights [entries], cut at `starts` [rows]."""
    return _ragged_rows_product(columns, starts, weights, dense, len(columns), at_once=_MANY)


def sums_of_rows(starts: Tensor, dense: Tensor) -> Tensor:
    """The sums of consecutive rows of `dense` [n, channels], cut at `starts` [rows]."""
    return _ragged_rows_product(None, starts, None, dense, len(dense), at_once=_FEW)


def _equal_rows_product(
    columns: Tensor, weights: Tensor, dense: Tensor, scores: Tensor | None, copies: Tensor | None
) -> Tensor:
    rows, entries = columns.shape
    channels = dense.shape[1]
    out = dense.new_empty(rows, channels)
    block = max(_TILE // channels, 1)
    rows_of_picture = rows if copies is None else rows // len(copies)
    arguments = columns, weights, dense, scores, copies, out, rows, rows_of_picture, entries, channels, block
    form = dense.get_device(), entries, channels, block, traits(columns, weights, dense, scores, copies, out)
    launch(_equal_rows, (-(-rows // block), 1, 1), arguments, _compiled_equal, form)
    return out


def _ragged_rows_product(
    columns: Tensor | None, starts: Tensor, weights: Tensor | None, dense: Tensor, entries: int, *, at_once: int
) -> Tensor:
    rows, channels = len(starts), dense.shape[1]
    out = dense.new_empty(rows, channels)
    block = max(_TILE // (channels * at_once), 1)
    arguments = columns, starts, weights, dense, out, rows, entries, channels, at_once, block
    form = dense.get_device(), channels, at_once, block, traits(columns, starts, weights, dense, out)
    launch(_ragged_rows, (-(-rows // block), 1, 1), arguments, _compiled_ragged, form)
    return out


# Sizes differ from picture to picture: compiled code must not depend on what divides them, nor on where the matrix of
# an axis begins among those of all axes.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows", "rows_of_picture"], do_not_specialize_on_alignment=["columns", "weights"]
)
def _equal_rows(  # type: ignore[no-untyped-def]
    columns, weights, dense, scores, copies, out, rows, rows_of_picture,
    entries: tl.constexpr, channels: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * block + tl.arange(0, block)
    exists = row < rows
    channel = tl.arange(0, channels)[None, :]
    here = row.to(tl.int64)[:, None] * channels + channel
    result = tl.zeros([block, channels], tl.float32)
    for entry in tl.static_range(entries):
        column = tl.load(columns + row * entries + entry, mask=exists, other=0).to(tl.int64)
        weight = tl.load(weights + row * entries + entry, mask=exists, other=0.0)
        result += weight[:, None] * tl.load(dense + column[:, None] * channels + channel)
    if scores is not None:
        result += tl.load(scores + here, mask=exists[:, None], other=0.0)
        powers = tl.exp(result - tl.max(result, 1)[:, None])
        picture = (row // rows_of_picture)[:, None]
        number = tl.load(copies + picture * channels + channel, mask=exists[:, None], other=1.0)
        result = powers / tl.sum(powers * number, 1)[:, None]
    tl.store(out + here, result, mask=exists[:, None])


@triton.jit(do_not_specialize=["rows", "entries"])  # type: ignore[untyped-decorator]
def _ragged_rows(  # type: ignore[no-untyped-def]
    columns, starts, weights, dense, out, rows, entries,
    channels: tl.constexpr, at_once: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * block + tl.arange(0, block)
    channel = tl.arange(0, channels)
    start = tl.load(starts + row, mask=row < rows, other=entries)
    end = tl.load(starts + row + 1, mask=row + 1 < rows, other=entries)
    result = tl.zeros([block, channels], tl.float32)
    for first in range(0, tl.max(end - start, 0), at_once):
        entry = start[:, None] + first + tl.arange(0, at_once)[None, :]
        belongs = entry < end[:, None]
        column = entry if columns is None else tl.load(columns + entry, mask=belongs, other=0)
        place = column.to(tl.int64)[:, :, None] * channels + channel[None, None, :]
        value = tl.load(dense + place, mask=belongs[:, :, None], other=0.0)
        if weights is not None:
            value *= tl.load(weights + entry, mask=belongs, other=0.0)[:, :, None]
        result += tl.sum(value, 1)
    here = row.to(tl.int64)[:, None] * channels + channel[None, :]
    tl.store(out + here, result, mask=(row < rows)[:, None])
