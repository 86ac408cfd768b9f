"""The dense CRF on a GPU as Triton kernels: simplex vertices, sparse products and mean-field inference.

The vertices have the same bits as those of `lattice`, which explains the steps; this rules out fused multiply-add.
`torch.nn.functional.embedding_bag` computes the same products, but leaves most of a GPU idle for few channels. Every
sum has a fixed order, so the result is deterministic. The number of channels must be a power of two, and the tensors
must be on the current GPU, where Triton launches kernels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tagseg._device import to_device
from tagseg.refine._mean_field import ClassGroups, grouped_softmax
from tagseg.refine._sparse import CsrMatrix
from tagseg.refine.lattice import Lattice, elevation_factors

# Pixels for which a program computes vertices.
_BLOCK = 64
# Values that a program of a sparse product holds at once.
_TILE = 1024
# Entries of a row that a program reads at once: of the segments of a row, and of a row of segments.
_SEGMENT_ENTRIES, _ROW_ENTRIES = 32, 4


def mean_field(lattice: Lattice, probs: Tensor, groups: ClassGroups, *, clip: float, iterations: int) -> Tensor:
    """Run mean-field inference as the function of this name in `_mean_field` does."""
    unary = groups.unary(probs, clip)
    q = grouped_softmax(unary, groups.counts)
    values, logits = q.flatten(0, 1), unary.flatten(0, 1)
    for _ in range(iterations):
        points = csr_product(lattice.splat, values)
        for blur in lattice.blur_steps:
            points = ell_product(blur.columns, blur.weights, points)
        ell_product(lattice.slice.columns, lattice.slice.weights, points, logits, groups.counts, out=values)
    return groups.expand(q)


def simplex_vertices(features: Tensor, table: Tensor, images: int) -> tuple[Tensor, Tensor]:
    """Find the vertices of each pixel's simplex.

    Args:
        features: Features of float32 [d, pixels], image after image.
        table: Key table of `key_table`.
        images: Number of images, all of the same size.

    Returns:
        The keys of the vertices, and the pixel's weight in each, both [d + 1, pixels].
    """
    dims, pixels = features.shape
    factors = to_device(elevation_factors(dims), torch.float32, features.device)
    keys = table.new_empty(dims + 1, pixels)
    weights = features.new_empty(dims + 1, pixels)
    rows = 1 << dims.bit_length()
    _simplex_vertices[(triton.cdiv(pixels, _BLOCK),)](
        features, factors, table, keys, weights, pixels, pixels // images, dims, rows, _BLOCK,
        enable_fp_fusion=False,
    )  # fmt: skip
    return keys, weights


def ell_product(
    columns: Tensor,
    weights: Tensor,
    dense: Tensor,
    logits: Tensor | None = None,
    counts: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply an `EllMatrix` with a dense one; optionally add logits and apply the grouped softmax.

    Args:
        columns: Column of every entry, [rows, entries].
        weights: Value of every entry, [rows, entries].
        dense: Dense matrix, [columns, channels].
        logits: Logits to add before the softmax, [rows, channels]; no softmax without them.
        counts: Number of classes in each channel of the softmax, [images, channels]; rows are image after image.
        out: Where to write the result.
    """
    rows, entries = columns.shape
    channels = dense.shape[1]
    out = dense.new_empty(rows, channels) if out is None else out
    block = max(_TILE // channels, 1)
    rows_per_image = rows if counts is None else rows // len(counts)
    _ell_product[(triton.cdiv(rows, block),)](
        columns, weights, dense, logits, counts, out, rows, rows_per_image, entries, channels, block
    )
    return out


def csr_product(matrix: CsrMatrix, dense: Tensor) -> Tensor:
    """Multiply a `CsrMatrix` with a dense one [columns, channels]: sum the segments, then the segments of each row."""
    assert matrix.segments is not None
    segments, first_segments = matrix.segments
    entries = len(matrix.columns)
    sums = _launch_csr(matrix.columns, segments, matrix.weights, dense, entries, at_once=_SEGMENT_ENTRIES)
    return _launch_csr(None, first_segments, None, sums, len(sums), at_once=_ROW_ENTRIES)


def _launch_csr(
    columns: Tensor | None, starts: Tensor, weights: Tensor | None, dense: Tensor, entries: int, *, at_once: int
) -> Tensor:
    """Sum weighted rows of `dense`, or its rows in order without columns and weights, from each start to the next."""
    rows, channels = len(starts), dense.shape[1]
    out = dense.new_empty(rows, channels)
    block = max(_TILE // (channels * at_once), 1)
    _csr_product[(triton.cdiv(rows, block),)](
        columns, starts, weights, dense, out, rows, entries, channels, at_once, block
    )
    return out


@triton.jit(do_not_specialize=["pixels", "pixels_per_image"])  # type: ignore[untyped-decorator]
def _simplex_vertices(  # type: ignore[no-untyped-def]
    features, factors, table, keys, weights, pixels, pixels_per_image,
    dims: tl.constexpr, rows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    size: tl.constexpr = dims + 1
    pixel = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    exists = pixel < pixels
    row_stride = pixels.to(tl.int64)
    axis = tl.arange(0, rows)[:, None]
    is_axis = axis < size

    # Sum from the last feature to the first, in the order of the authors' implementation.
    elevated = tl.zeros([rows, block], tl.float32)
    total = tl.zeros([block], tl.float32)
    for index in tl.static_range(dims):
        feature = dims - 1 - index
        scaled = tl.load(features + feature * row_stride + pixel, mask=exists, other=0.0) * tl.load(factors + feature)
        elevated = tl.where(axis == feature + 1, (total - scaled * (feature + 1))[None, :], elevated)
        total += scaled
    elevated = tl.where(axis == 0, total[None, :], elevated)

    # Round half to even, as torch does.
    quotient = elevated * (1 / size)
    origin = tl.floor(quotient)
    fraction = quotient - origin
    is_odd = origin - 2 * tl.floor(origin * 0.5) == 1
    origin += tl.where((fraction > 0.5) | ((fraction == 0.5) & is_odd), 1.0, 0.0)
    offset = elevated - origin * size

    # The rank is the number of smaller offsets; of two equal offsets the first counts as the larger.
    offset_of_axis, offset_of_other = offset[:, None, :], offset[None, :, :]
    other = tl.arange(0, rows)[None, :, None]
    smaller = offset_of_other < offset_of_axis
    smaller |= (offset_of_other == offset_of_axis) & (axis[:, :, None] < other)
    rank = tl.sum((smaller & (other < size)).to(tl.int32), 1)
    # Rounding can leave the hyperplane: the coordinates that were rounded most move back by one step.
    rank -= tl.sum(origin, 0).to(tl.int32)[None, :]
    step = tl.where(rank < 0, -1, tl.where(rank >= size, 1, 0))
    rank = tl.where(is_axis, rank - step * size, rows)
    origin += step.to(tl.float32)
    offset = (elevated - origin * size) * (1 / size)

    # From here on the first dimension is the vertex.
    vertex = axis[:, :, None]
    ranks, offsets = rank[None, :, :], offset[None, :, :]
    ascending = tl.sum(tl.where(ranks == vertex, offsets, 0.0), 1)
    previous = tl.sum(tl.where(ranks == (vertex + dims) % size, offsets, 0.0), 1)
    weight = ascending - tl.where(axis == 0, previous - 1, previous)

    stride = tl.load(table + 5 * axis, mask=is_axis, other=0)
    low = tl.load(table + 5 * axis + 1, mask=is_axis, other=0)
    back = tl.load(table + 5 * axis + 4, mask=is_axis, other=0)
    image = (pixel // pixels_per_image).to(low.dtype)
    first = tl.load(table + 5 * size) + image * tl.load(table + 5 * size + 1)
    first += tl.sum((origin.to(low.dtype) - low) * stride, 0)
    key = first[None, :] + tl.sum(tl.where(ranks < vertex, back[None, :, :], 0), 1)

    address = axis * row_stride + pixel[None, :]
    tl.store(keys + address, key, mask=is_axis & exists[None, :])
    tl.store(weights + address, weight, mask=is_axis & exists[None, :])


# Image sizes vary, so the compiled code must depend neither on the divisibility of sizes nor on the alignment of a
# step's matrix among those of all steps.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows", "rows_per_image"], do_not_specialize_on_alignment=["columns", "weights"]
)
def _ell_product(  # type: ignore[no-untyped-def]
    columns, weights, dense, logits, counts, out, rows, rows_per_image,
    entries: tl.constexpr, channels: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * block + tl.arange(0, block)
    exists = row < rows
    channel = tl.arange(0, channels)[None, :]
    first = row.to(tl.int64) * entries
    address = row.to(tl.int64)[:, None] * channels + channel
    result = tl.zeros([block, channels], tl.float32)
    for entry in tl.static_range(entries):
        column = tl.load(columns + first + entry, mask=exists, other=0).to(tl.int64)
        weight = tl.load(weights + first + entry, mask=exists, other=0.0)
        result += weight[:, None] * tl.load(dense + column[:, None] * channels + channel)
    if logits is not None:
        result += tl.load(logits + address, mask=exists[:, None], other=0.0)
        exps = tl.exp(result - tl.max(result, 1)[:, None])
        image = (row // rows_per_image)[:, None]
        count = tl.load(counts + image * channels + channel, mask=exists[:, None], other=1.0)
        result = exps / tl.sum(exps * count, 1)[:, None]
    tl.store(out + address, result, mask=exists[:, None])


@triton.jit(do_not_specialize=["rows", "entries"])  # type: ignore[untyped-decorator]
def _csr_product(  # type: ignore[no-untyped-def]
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
        address = column.to(tl.int64)[:, :, None] * channels + channel[None, None, :]
        value = tl.load(dense + address, mask=belongs[:, :, None], other=0.0)
        if weights is not None:
            value *= tl.load(weights + entry, mask=belongs, other=0.0)[:, :, None]
        result += tl.sum(value, 1)
    out_address = row.to(tl.int64)[:, None] * channels + channel[None, :]
    tl.store(out + out_address, result, mask=(row < rows)[:, None])
