"""The corners of every pixel's simplex on a GPU, as one Triton kernel in place of some sixty operations of torch.

It gives the same bits as `_simplex`, which explains the steps: nothing may be multiplied and added in one rounding. The
tensors have to be on the current GPU: Triton starts kernels there.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tagseg._device import to_device
from tagseg.refine._simplex import elevation_factors

# Pixels that a program computes at once.
_BLOCK = 64


def corners(features: Tensor, table: Tensor, images: int) -> tuple[Tensor, Tensor]:
    """The number of each corner, and the pixel's weight in it, both [d + 1, pixels].

    Args:
        features: float32 [d, pixels], one image's pixels after another's.
        table: how points are numbered, see `numbering_table`.
        images: how many there are, all of one size.
    """
    dims, pixels = features.shape
    factors = to_device(elevation_factors(dims), torch.float32, features.device)
    codes = table.new_empty(dims + 1, pixels)
    weights = features.new_empty(dims + 1, pixels)
    rows = 1 << dims.bit_length()
    _corners[(triton.cdiv(pixels, _BLOCK),)](
        features, factors, table, codes, weights, pixels, pixels // images, dims, rows, _BLOCK,
        enable_fp_fusion=False,
    )  # fmt: skip
    return codes, weights


@triton.jit(do_not_specialize=["pixels", "pixels_of_image"])  # type: ignore[untyped-decorator]
def _corners(  # type: ignore[no-untyped-def]
    features, factors, table, codes, weights, pixels, pixels_of_image,
    dims: tl.constexpr, rows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    size: tl.constexpr = dims + 1
    pixel = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    exists = pixel < pixels
    apart = pixels.to(tl.int64)  # from a row of features to the next
    axis = tl.arange(0, rows)[:, None]
    is_axis = axis < size

    # From the last feature to the first, as the reference implementation adds them.
    elevated = tl.zeros([rows, block], tl.float32)
    above = tl.zeros([block], tl.float32)
    for below in tl.static_range(dims):
        feature = dims - 1 - below
        own = tl.load(features + feature * apart + pixel, mask=exists, other=0.0) * tl.load(factors + feature)
        elevated = tl.where(axis == feature + 1, (above - own * (feature + 1))[None, :], elevated)
        above += own
    elevated = tl.where(axis == 0, above[None, :], elevated)

    # To the nearest whole number, and from the middle to the even one.
    quotient = elevated * (1 / size)
    origin = tl.floor(quotient)
    rest = quotient - origin
    is_odd = origin - 2 * tl.floor(origin * 0.5) == 1
    origin += tl.where((rest > 0.5) | ((rest == 0.5) & is_odd), 1.0, 0.0)
    offset = elevated - origin * size

    # Each axis counts those with a smaller offset: of equal ones the first is the larger.
    mine, theirs = offset[:, None, :], offset[None, :, :]
    other = tl.arange(0, rows)[None, :, None]
    smaller = (theirs < mine) | ((theirs == mine) & (axis[:, :, None] < other))
    place = tl.sum((smaller & (other < size)).to(tl.int32), 1)
    # Rounding can leave the plane; the coordinates that moved most go back by one step, and the order turns with them.
    place -= tl.sum(origin, 0).to(tl.int32)[None, :]
    step = tl.where(place < 0, -1, tl.where(place >= size, 1, 0))
    place = tl.where(is_axis, place - step * size, rows)
    origin += step.to(tl.float32)
    offset = (elevated - origin * size) * (1 / size)

    # From here on the first dimension is that of the corners.
    corner = axis[:, :, None]
    places, offsets = place[None, :, :], offset[None, :, :]
    ascending = tl.sum(tl.where(places == corner, offsets, 0.0), 1)
    before = tl.sum(tl.where(places == (corner + dims) % size, offsets, 0.0), 1)
    weight = ascending - tl.where(axis == 0, before - 1, before)

    stride = tl.load(table + 5 * axis, mask=is_axis, other=0)
    low = tl.load(table + 5 * axis + 1, mask=is_axis, other=0)
    back = tl.load(table + 5 * axis + 4, mask=is_axis, other=0)
    image = (pixel // pixels_of_image).to(low.dtype)
    first = tl.load(table + 5 * size) + image * tl.load(table + 5 * size + 1)
    first += tl.sum((origin.to(low.dtype) - low) * stride, 0)
    code = first[None, :] + tl.sum(tl.where(places < corner, back[None, :, :], 0), 1)

    here = axis * apart + pixel[None, :]
    tl.store(codes + here, code, mask=is_axis & exists[None, :])
    tl.store(weights + here, weight, mask=is_axis & exists[None, :])
