"""A convolution as one Triton kernel: the product of all patches with the weights, without the patches in memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

_PIXELS, _OUTPUTS, _CHANNELS = 128, 128, 64  # of a program: what it computes, and how much it multiplies at a time


def convolve(x: Tensor, matrix: Tensor, conv: nn.Conv2d, padding: tuple[int, ...]) -> Tensor:
    """Convolve maps [B, C, h, w] in the channels-last layout; the result has it too.

    Args:
        x: the maps, of the weights' type.
        matrix: the weights, [taps * C, outputs].
        conv: what else there is to know of the convolution, with its bias.
        padding: its padding, down and across.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    batch, channels, height, width = x.shape
    out_height, out_width = (
        (size + 2 * border - dilation * (side - 1) - 1) // stride + 1
        for size, border, dilation, side, stride in zip(
            (height, width), padding, conv.dilation, conv.kernel_size, conv.stride, strict=True
        )
    )
    outputs = conv.out_channels
    result = x.new_empty(batch, out_height, out_width, outputs)
    block = min(_OUTPUTS, triton.next_power_of_2(outputs))
    pixels = batch * out_height * out_width
    with torch.cuda.device_of(x):  # kernels start on the current GPU, which may be another
        _convolve[(triton.cdiv(pixels, _PIXELS), triton.cdiv(outputs, block))](
            x, matrix, matrix if conv.bias is None else conv.bias, result, height, width, out_height, out_width,
            pixels, channels, outputs, *conv.stride, *padding, *conv.dilation,
            conv.kernel_size[0], conv.kernel_size[1], conv.bias is not None, _PIXELS, block, _CHANNELS, num_warps=8,
            num_stages=3,
        )  # fmt: skip
    return result.permute(0, 3, 1, 2)


@triton.jit(do_not_specialize=["height", "width", "out_height", "out_width", "pixels"])  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    x, matrix, bias, result, height, width, out_height, out_width, pixels, channels, outputs,
    stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    taps_y: tl.constexpr, taps_x: tl.constexpr, biased: tl.constexpr,
    block_pixels: tl.constexpr, block_outputs: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * block_pixels + tl.arange(0, block_pixels)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    lane = tl.arange(0, block_channels)
    column, row = pixel % out_width, pixel // out_width % out_height
    picture = (pixel // (out_width * out_height)).to(tl.int64) * height * width
    top, left = row * stride_y - padding_y, column * stride_x - padding_x
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
    if biased:
        total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    where = pixel.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(result + where, total, mask=(pixel < pixels)[:, None] & (output < outputs)[None, :])
