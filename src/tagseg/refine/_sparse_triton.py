"""Products with sparse matrices on a GPU, as Triton kernels.

`torch.nn.functional.embedding_bag` gives the same, but leaves most of a GPU idle where channels are few. Every sum is
taken in a fixed order, so the same input gives the same bits. The number of channels has to be a power of two, and the
tensors have to be on the current GPU: Triton starts kernels there.
"""

import triton
import triton.language as tl
from torch import Tensor

from tagseg.refine.lattice import Lattice

# Numbers that a program holds at once.
_TILE = 1024
# Entries of a row that a program reads at once: of many entries, and of few.
_MANY, _FEW = 32, 4


def equal_rows_product(
    columns: Tensor,
    weights: Tensor,
    dense: Tensor,
    scores: Tensor | None = None,
    copies: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The sums of weight * dense[column], or their softmax over the channels.

    Args:
        columns: [rows, entries].
        weights: [rows, entries].
        dense: [n, channels].
        scores: what to add before the softmax, [rows, channels]; no softmax without them.
        copies: how many times each channel counts in the softmax, [images, channels]; the images have equally many
            rows, one image's after another's.
        out: where to write.
    """
    rows, entries = columns.shape
    channels = dense.shape[1]
    out = dense.new_empty(rows, channels) if out is None else out
    block = max(_TILE // channels, 1)
    rows_of_image = rows if copies is None else rows // len(copies)
    _equal_rows[(triton.cdiv(rows, block),)](
        columns, weights, dense, scores, copies, out, rows, rows_of_image, entries, channels, block
    )
    return out


def weighted_sums(columns: Tensor, starts: Tensor, weights: Tensor, dense: Tensor) -> Tensor:
    """The sums of weight * dense[column] over columns and weights [entries], cut at `starts` [rows]."""
    return _ragged_rows_product(columns, starts, weights, dense, len(columns), at_once=_MANY)


def sums_of_rows(starts: Tensor, dense: Tensor) -> Tensor:
    """The sums of consecutive rows of `dense` [n, channels], cut at `starts` [rows]."""
    return _ragged_rows_product(None, starts, None, dense, len(dense), at_once=_FEW)


def _ragged_rows_product(
    columns: Tensor | None, starts: Tensor, weights: Tensor | None, dense: Tensor, entries: int, *, at_once: int
) -> Tensor:
    rows, channels = len(starts), dense.shape[1]
    out = dense.new_empty(rows, channels)
    block = max(_TILE // (channels * at_once), 1)
    _ragged_rows[(triton.cdiv(rows, block),)](
        columns, starts, weights, dense, out, rows, entries, channels, at_once, block
    )
    return out


def mean_field(lattice: Lattice, log_probs: Tensor, copies: Tensor, shares: Tensor, iterations: int) -> None:
    """Replace `shares` by what all other pixels answer, so many times.

    An answer is the softmax over the slots of their scores and what the lattice gives, where a slot counts as often as
    it has copies.

    Args:
        lattice: the sum of both kernels, over the pixels of all images.
        log_probs: the scores, [images, pixels, slots].
        copies: how many classes each slot stands for, [images, slots].
        shares: like `log_probs`, contiguous.
        iterations: how often.
    """
    splat, read = lattice.splat, lattice.slice
    assert splat.pieces is not None
    pieces, first_pieces = splat.pieces
    own, scores = shares.flatten(0, 1), log_probs.flatten(0, 1)
    for _ in range(iterations):
        values = sums_of_rows(first_pieces, weighted_sums(splat.columns, pieces, splat.weights, own))
        for blur in lattice.steps:
            values = equal_rows_product(blur.columns, blur.weights, values)
        equal_rows_product(read.columns, read.weights, values, scores, copies, out=own)


# Sizes differ from image to image: compiled code must not depend on what divides them, nor on where the matrix of
# a step begins among those of all steps.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows", "rows_of_image"], do_not_specialize_on_alignment=["columns", "weights"]
)
def _equal_rows(  # type: ignore[no-untyped-def]
    columns, weights, dense, scores, copies, out, rows, rows_of_image,
    entries: tl.constexpr, channels: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * block + tl.arange(0, block)
    exists = row < rows
    channel = tl.arange(0, channels)[None, :]
    first = row.to(tl.int64) * entries
    here = row.to(tl.int64)[:, None] * channels + channel
    result = tl.zeros([block, channels], tl.float32)
    for entry in tl.static_range(entries):
        column = tl.load(columns + first + entry, mask=exists, other=0).to(tl.int64)
        weight = tl.load(weights + first + entry, mask=exists, other=0.0)
        result += weight[:, None] * tl.load(dense + column[:, None] * channels + channel)
    if scores is not None:
        result += tl.load(scores + here, mask=exists[:, None], other=0.0)
        powers = tl.exp(result - tl.max(result, 1)[:, None])
        image = (row // rows_of_image)[:, None]
        number = tl.load(copies + image * channels + channel, mask=exists[:, None], other=1.0)
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
