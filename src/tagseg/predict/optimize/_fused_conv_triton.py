"""Fused convolution as one Triton kernel: implicit patches times weights, plus bias, residual and ReLU."""

from functools import cache
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from tagseg.predict.optimize.fused_conv import FusedConv2d

_LAYOUT = torch.channels_last
# Pixels and output channels of a program, and its warps. Large tiles load least for each product; small ones keep all
# processors of a GPU busy where there is little to compute.
_TILES = ((128, 256, 8), (128, 128, 4), (64, 64, 4))
_MIN_PROGRAMS = 128  # for about as many processors
_STAGES, _BYTES = 3, 128  # loads in flight, and bytes of each pixel that one load reads
_DEPTHWISE = (32, 64)
_MAX_INT32_VALUES = 2**31  # offsets of larger tensors need 64 bits


def convolve(x: Tensor, conv: "FusedConv2d", residual: Tensor | None) -> Tensor:
    """Convolve channels-last maps; the output is channels last too.

    Args:
        x: Maps, [B, C, h, w].
        conv: Convolution.
        residual: Added to the output, before the ReLU if there is one.
    """
    matrix = conv.matrix
    if x.dtype is not matrix.dtype:  # the check is cheaper than a cast that does nothing
        x = x.to(matrix.dtype)
    x = x.contiguous(memory_format=_LAYOUT)
    batch, channels, height, width = x.shape
    (top, left), (out_height, out_width) = conv.output_geometry(height, width)
    outputs = matrix.shape[1]
    shape = batch, outputs, out_height, out_width
    result = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=_LAYOUT)
    if residual is not None and residual.shape == shape:
        fused_residual, limit = residual.contiguous(memory_format=_LAYOUT), conv.limit
    else:
        fused_residual, limit = None, conv.limit if residual is None else None
    pixels, wide = batch * out_height * out_width, x.numel() >= _MAX_INT32_VALUES
    common: tuple[object, ...] = (
        x, matrix, conv.bias, fused_residual, result, height, width, out_height, out_width, pixels, channels, outputs,
        top, left, *conv.stride, *conv.dilation, *conv.kernel_size, limit, wide,
    )  # fmt: skip
    specific: tuple[object, ...]  # arguments of one of the two kernels
    if conv.depthwise:
        rows, columns = specific = _DEPTHWISE
        kernel, options = _convolve_depthwise, {}
    else:
        rows, columns, warps = _tile(pixels, outputs, x.device)
        step = _BYTES // x.element_size()
        even = channels % step == outputs % columns == 0
        specific = conv.pointwise, even, _precision(x.device), rows, columns, step
        kernel, options = _convolve, {"num_warps": warps, "num_stages": _STAGES}
    grid = _parts(pixels, rows), _parts(outputs, columns), 1
    with torch.cuda.device_of(x):  # kernels start on the current GPU, which may be another
        kernel[grid](*common, *specific, **options)
    if residual is None or fused_residual is not None:
        return result
    return conv.activate(result + residual)  # one of the two is broadcast over the other


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)  # triton.cdiv takes several microseconds


def _tile(pixels: int, outputs: int, device: torch.device) -> tuple[int, int, int]:
    """The largest tile that gives enough programs, or else the smallest."""
    tiles = _fitting_tiles(device)
    for rows, columns, warps in tiles:
        if columns <= outputs and _parts(pixels, rows) * _parts(outputs, columns) >= _MIN_PROGRAMS:
            return rows, columns, warps
    return tiles[-1]


@cache
def _fitting_tiles(device: torch.device) -> list[tuple[int, int, int]]:
    """Tiles that fit into shared memory; the smallest fits everywhere."""
    if device.type == "cpu":  # Triton's interpreter
        return list(_TILES)
    memory = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 2**16)  # AMD's has none
    needs = [(rows + columns) * _BYTES * _STAGES for rows, columns, _ in _TILES]
    return [tile for tile, need in zip(_TILES, needs, strict=True) if need <= memory or tile is _TILES[-1]]


@cache
def _precision(device: torch.device) -> str:
    """Multiplication of float32: three TF32 products where there is TF32, since one alone would lose precision."""
    has_tf32 = device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)
    return "tf32x3" if has_tf32 else "ieee"


# Without this Triton would compile again for sizes that are 1 or a multiple of 16.
_SIZES = [
    "height", "width", "out_height", "out_width", "pixels",
    *(f"{name}_{axis}" for name in ("first", "stride", "dilation") for axis in "yx"),
]  # fmt: skip


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    x, matrix, bias, residual, result, height, width, out_height, out_width, pixels, channels, outputs,
    first_y, first_x, stride_y, stride_x, dilation_y, dilation_x,
    taps_y: tl.constexpr, taps_x: tl.constexpr, limit: tl.constexpr, wide: tl.constexpr,
    pointwise: tl.constexpr, even: tl.constexpr, precision: tl.constexpr,
    block_pixels: tl.constexpr, block_outputs: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    """Cases that need fewer instructions between two products have branches of their own."""
    pixel = tl.program_id(0) * block_pixels + tl.arange(0, block_pixels)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    lane = tl.arange(0, block_channels)
    top, left, corner = _corners(
        pixel, height, width, out_height, out_width, first_y, first_x, stride_y, stride_x, wide, pointwise
    )
    total = tl.zeros([block_pixels, block_outputs], tl.float32)
    tap, first = 0, 0
    # One loop over taps and channels, so that the next loads start while the last ones are multiplied.
    for _ in range(taps_y * taps_x * tl.cdiv(channels, block_channels)):
        channel = first + lane
        down, across = tap // taps_x * dilation_y, tap % taps_x * dilation_x
        inside = pixel < pixels
        if not pointwise:
            y, x_ = top + down, left + across
            inside &= (y >= 0) & (y < height) & (x_ >= 0) & (x_ < width)
        values_at = x + (corner * channels + ((down * width + across) * channels + first))[:, None] + lane[None, :]
        weights_at = matrix + (tap * channels + channel)[:, None] * outputs + output[None, :]
        if even:
            values = tl.load(values_at, mask=inside[:, None], other=0.0)
            weights = tl.load(weights_at)
        else:
            exists = channel < channels
            values = tl.load(values_at, mask=inside[:, None] & exists[None, :], other=0.0)
            weights = tl.load(weights_at, mask=exists[:, None] & (output < outputs)[None, :], other=0.0)
        total = tl.dot(values, weights, total, input_precision=precision)
        first += block_channels
        if not pointwise:
            over = first >= channels
            tap, first = tl.where(over, tap + 1, tap), tl.where(over, 0, first)
    _finish(total, bias, residual, result, pixel, output, pixels, outputs, limit)


@triton.jit  # type: ignore[untyped-decorator]
def _corners(  # type: ignore[no-untyped-def]
    pixel, height, width, out_height, out_width, first_y, first_x, stride_y, stride_x,
    wide: tl.constexpr, pointwise: tl.constexpr,
):  # fmt: skip
    """Position of the first tap of each output pixel: its row, its column, and its index among all pixels."""
    kind: tl.constexpr = tl.int64 if wide else tl.int32
    if pointwise:
        top, left, corner = pixel, pixel, pixel.to(kind)
    else:
        top, left = pixel // out_width % out_height * stride_y - first_y, pixel % out_width * stride_x - first_x
        corner = (pixel // (out_width * out_height)).to(kind) * height * width + top * width + left
    return top, left, corner


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def _convolve_depthwise(  # type: ignore[no-untyped-def]
    x, matrix, bias, residual, result, height, width, out_height, out_width, pixels, channels, outputs,
    first_y, first_x, stride_y, stride_x, dilation_y, dilation_x,
    taps_y: tl.constexpr, taps_x: tl.constexpr, limit: tl.constexpr, wide: tl.constexpr,
    block_pixels: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * block_pixels + tl.arange(0, block_pixels)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    top, left, corner = _corners(
        pixel, height, width, out_height, out_width, first_y, first_x, stride_y, stride_x, wide, False
    )
    total = tl.zeros([block_pixels, block_outputs], tl.float32)
    for tap in tl.static_range(taps_y * taps_x):  # unrolled: there is little to multiply while loads run
        down, across = tap // taps_x * dilation_y, tap % taps_x * dilation_x
        y, x_ = top + down, left + across
        inside = (pixel < pixels) & (y >= 0) & (y < height) & (x_ >= 0) & (x_ < width)
        values = tl.load(
            x + (corner + (down * width + across))[:, None] * channels + output[None, :],
            mask=inside[:, None] & (output < channels)[None, :],
            other=0.0,
        )
        weights = tl.load(matrix + tap * outputs + output, mask=output < outputs, other=0.0)
        total += values.to(tl.float32) * weights.to(tl.float32)[None, :]
    _finish(total, bias, residual, result, pixel, output, pixels, outputs, limit)


@triton.jit  # type: ignore[untyped-decorator]
def _finish(total, bias, residual, result, pixel, output, pixels, outputs, limit: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add bias and residual, apply the ReLU if there is one, and store."""
    if bias is not None:
        total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    address = pixel.to(tl.int64)[:, None] * outputs + output[None, :]
    inside = (pixel < pixels)[:, None] & (output < outputs)[None, :]
    if residual is not None:
        total += tl.load(residual + address, mask=inside, other=0.0).to(tl.float32)
    if limit is not None:
        total = tl.where(total < 0, 0.0, total)  # keeps NaN
        total = tl.where(total > limit, limit, total)
    tl.store(result + address, total, mask=inside)
