"""A convolution as one Triton kernel: the product of all patches with the weights, without the patches in memory."""

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from tagseg.inference.unplanned import Unplanned

_PIXELS, _OUTPUTS, _CHANNELS = 128, 128, 64  # of a program: what it computes, and how much it multiplies at a time
_PIXELS_DEPTHWISE, _OUTPUTS_DEPTHWISE = 32, 64
_LAYOUT = torch.channels_last


def convolve(x: Tensor, conv: "Unplanned", added: Tensor | None) -> Tensor:
    """Convolve maps [B, C, h, w] in the channels-last layout; the result has it too, and the weights' type.

    Args:
        x: the maps.
        conv: the convolution.
        added: what is added to the result, before the ReLU if there is one.
    """
    matrix = conv.matrix
    if x.dtype is not matrix.dtype:  # asking is cheaper than a cast that does nothing
        x = x.to(matrix.dtype)
    x = x.contiguous(memory_format=_LAYOUT)
    batch, channels, height, width = x.shape
    (top, left), (out_height, out_width) = conv.places(height, width)
    outputs = matrix.shape[1]
    shape = batch, outputs, out_height, out_width
    result = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=_LAYOUT)
    if added is not None and added.shape == shape:
        part, limit = added.contiguous(memory_format=_LAYOUT), conv.limit
    else:
        part, limit = None, conv.limit if added is None else None
    pixels = batch * out_height * out_width
    arguments = (
        x, matrix, conv.bias, part, result, height, width, out_height, out_width, pixels, channels, outputs,
        top, left, *conv.stride, *conv.dilation, *conv.kernel_size, limit,
    )  # fmt: skip
    most = triton.next_power_of_2(outputs)
    with torch.cuda.device_of(x):  # kernels start on the current GPU, which may be another
        if conv.depthwise:
            block = min(_OUTPUTS_DEPTHWISE, most)
            grid = triton.cdiv(pixels, _PIXELS_DEPTHWISE), triton.cdiv(outputs, block)
            _convolve_depthwise[grid](*arguments, _PIXELS_DEPTHWISE, block)
        else:
            block = min(_OUTPUTS, most)
            grid = triton.cdiv(pixels, _PIXELS), triton.cdiv(outputs, block)
            _convolve[grid](*arguments, _PIXELS, block, _CHANNELS, num_warps=8, num_stages=3)
    if added is None or part is not None:
        return result
    return conv.activate(result + added)  # one of the two is spread over the other's map


# Triton would else compile anew for sizes that are 1 or a multiple of 16.
_ANY = [
    "height", "width", "out_height", "out_width", "pixels",
    *(f"{name}_{axis}" for name in ("first", "stride", "dilation") for axis in "yx"),
]  # fmt: skip


@triton.jit(do_not_specialize=_ANY)  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    x, matrix, bias, added, result, height, width, out_height, out_width, pixels, channels, outputs,
    first_y, first_x, stride_y, stride_x, dilation_y, dilation_x,
    taps_y: tl.constexpr, taps_x: tl.constexpr, limit: tl.constexpr,
    block_pixels: tl.constexpr, block_outputs: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * block_pixels + tl.arange(0, block_pixels)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    lane = tl.arange(0, block_channels)
    column, row = pixel % out_width, pixel // out_width % out_height
    picture = (pixel // (out_width * out_height)).to(tl.int64) * height * width
    top, left = row * stride_y - first_y, column * stride_x - first_x
    chunks = tl.cdiv(channels, block_channels)
    total = tl.zeros([block_pixels, block_outputs], tl.float32)
    # One loop over taps and channels together, so that the next loads start while the last ones are multiplied.
    for step in range(taps_y * taps_x * chunks):
        tap, first = step // chunks, step % chunks * block_channels
        y, x_ = top + tap // taps_x * dilation_y, left + tap % taps_x * dilation_x
        inside = (y >= 0) & (y < height) & (x_ >= 0) & (x_ < width) & (pixel < pixels)
        channel = first + lane
        values = tl.load(
            x + (picture + y * width + x_)[:, None] * channels + channel[None, :],
            mask=inside[:, None] & (channel < channels)[None, :],
            other=0.0,
        )
        weights = tl.load(
            matrix + (tap * channels + channel)[:, None] * outputs + output[None, :],
            mask=(channel < channels)[:, None] & (output < outputs)[None, :],
            other=0.0,
        )
        total = tl.dot(values, weights, total)
    _finish(total, bias, added, result, pixel, output, pixels, outputs, limit)


@triton.jit(do_not_specialize=_ANY)  # type: ignore[untyped-decorator]
def _convolve_depthwise(  # type: ignore[no-untyped-def]
    x, matrix, bias, added, result, height, width, out_height, out_width, pixels, channels, outputs,
    first_y, first_x, stride_y, stride_x, dilation_y, dilation_x,
    taps_y: tl.constexpr, taps_x: tl.constexpr, limit: tl.constexpr,
    block_pixels: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * block_pixels + tl.arange(0, block_pixels)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    column, row = pixel % out_width, pixel // out_width % out_height
    picture = (pixel // (out_width * out_height)).to(tl.int64) * height * width
    top, left = row * stride_y - first_y, column * stride_x - first_x
    total = tl.zeros([block_pixels, block_outputs], tl.float32)
    for tap in tl.static_range(taps_y * taps_x):  # all loads at once: there is little to multiply meanwhile
        y, x_ = top + tap // taps_x * dilation_y, left + tap % taps_x * dilation_x
        inside = (y >= 0) & (y < height) & (x_ >= 0) & (x_ < width) & (pixel < pixels)
        values = tl.load(
            x + (picture + y * width + x_)[:, None] * channels + output[None, :],
            mask=inside[:, None] & (output < channels)[None, :],
            other=0.0,
        )
        weights = tl.load(matrix + tap * outputs + output, mask=output < outputs, other=0.0)
        total += values.to(tl.float32) * weights.to(tl.float32)[None, :]
    _finish(total, bias, added, result, pixel, output, pixels, outputs, limit)


@triton.jit  # type: ignore[untyped-decorator]
def _finish(total, bias, added, result, pixel, output, pixels, outputs, limit: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add what is to be added, apply the ReLU if there is one, and store."""
    if bias is not None:
        total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    where = pixel.to(tl.int64)[:, None] * outputs + output[None, :]
    within = (pixel < pixels)[:, None] & (output < outputs)[None, :]
    if added is not None:
        total += tl.load(added + where, mask=within, other=0.0).to(tl.float32)
    if limit is not None:
        total = tl.where(total < 0, 0.0, total)  # what is not a number stays so
        total = tl.where(total > limit, limit, total)
    tl.store(result + where, total, mask=within)
