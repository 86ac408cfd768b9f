"""The fused form of `enlarged_cross_entropy` for GPUs: logits are interpolated where they are needed, in registers.

Forwards, a program takes a block of the picture's pixels and walks through the classes. Backwards, it takes a block of
the small map's nodes and gathers from the pixels around each, so that nothing is added up in an order that varies.
"""

from math import floor
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = 256  # of a program, forwards
_NODES = 128  # of a program, backwards
_CHANNELS = 4  # classes that it handles together


@triton.jit
def _between(place, last):  # type: ignore[no-untyped-def]
    """The nodes before and after a place on the small map's axis, and how far it is from the first."""
    before = place.to(tl.int32)
    return before, tl.minimum(before + 1, last), place - before


@triton.jit
def _forwards(  # type: ignore[no-untyped-def]
    logits, labels, class_weights, sums, log_totals, pixel_weights, height, width, big_height, big_width,
    step_y, step_x, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block, picture = tl.program_id(0), tl.program_id(1)
    pixels, nodes = big_height * big_width, height * width
    pixel = block * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    at = picture.to(tl.int64) * pixels + pixel
    label = tl.load(labels + at, mask=inside, other=-1)
    weight = tl.load(class_weights + picture * CHANNELS + label, mask=inside & (label >= 0), other=0.0)

    top, bottom, down = _between((pixel // big_width) * step_y, height - 1)
    left, right, across = _between((pixel % big_width) * step_x, width - 1)
    plane = logits + picture.to(tl.int64) * CHANNELS * nodes
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    own = tl.zeros([BLOCK], tl.float32)
    for channel in range(CHANNELS):
        upper = tl.load(plane + top * width + left, mask=inside) * (1 - across)
        upper += tl.load(plane + top * width + right, mask=inside) * across
        lower = tl.load(plane + bottom * width + left, mask=inside) * (1 - across)
        lower += tl.load(plane + bottom * width + right, mask=inside) * across
        score = upper * (1 - down) + lower * down
        higher = tl.maximum(highest, score)
        total = total * tl.exp(highest - higher) + tl.exp(score - higher)
        highest = higher
        own = tl.where(label == channel, score, own)
        plane += nodes
    log_total = highest + tl.log(total)
    tl.store(log_totals + at, log_total, mask=inside)
    tl.store(pixel_weights + at, weight, mask=inside)
    loss = tl.where(inside & (label >= 0), weight * (log_total - own), 0.0)
    tl.store(sums + picture * tl.num_programs(0) + block, tl.sum(loss))


@triton.jit
def _row(above, here, below, step, node, at):  # type: ignore[no-untyped-def]
    """A score between two rows of nodes, at a place that is within one node's distance of `node`."""
    share = at - step
    return tl.where(step == node, here * (1 - share) + below * share, above * (1 - share) + here * share)


@triton.jit
def _share(step, at, node, inside):  # type: ignore[no-untyped-def]
    """How much a node contributes to a place: 1 where they meet, 0 from the next node on."""
    share = tl.where(step == node, 1 - (at - step), tl.where(step == node - 1, at - step, 0.0))
    return tl.where(inside, share, 0.0)


@triton.jit
def _backwards(  # type: ignore[no-untyped-def]
    logits, labels, log_totals, pixel_weights, upstream, gradients, height, width, big_height, big_width,
    step_y, step_x, pitch_y, pitch_x, WINDOW_Y: tl.constexpr, WINDOW_X: tl.constexpr,
    CHANNELS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    group, picture = tl.program_id(1), tl.program_id(2)
    nodes = height * width
    node = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = group * GROUP + tl.arange(0, GROUP)[:, None]
    real = (node[None] < nodes) & (channel < CHANNELS)
    row, column = node // width, node % width
    plane = logits + (picture.to(tl.int64) * CHANNELS + channel) * nodes

    up, down = tl.maximum(row - 1, 0) * width, tl.minimum(row + 1, height - 1) * width
    left, right, middle = tl.maximum(column - 1, 0), tl.minimum(column + 1, width - 1), row * width
    nw = tl.load(plane + (up + left)[None], mask=real, other=0.0)
    n = tl.load(plane + (up + column)[None], mask=real, other=0.0)
    ne = tl.load(plane + (up + right)[None], mask=real, other=0.0)
    w = tl.load(plane + (middle + left)[None], mask=real, other=0.0)
    c = tl.load(plane + (middle + column)[None], mask=real, other=0.0)
    e = tl.load(plane + (middle + right)[None], mask=real, other=0.0)
    sw = tl.load(plane + (down + left)[None], mask=real, other=0.0)
    s = tl.load(plane + (down + column)[None], mask=real, other=0.0)
    se = tl.load(plane + (down + right)[None], mask=real, other=0.0)

    # The pixels that a node takes part in lie between its two neighbours; 1e-3 is more than rounding can move them.
    first_y = tl.ceil((row - 1) * pitch_y - 1e-3).to(tl.int32)
    first_x = tl.ceil((column - 1) * pitch_x - 1e-3).to(tl.int32)
    gradient = tl.zeros([GROUP, BLOCK], tl.float32)
    for dy in range(WINDOW_Y):
        y = first_y + dy
        at_y = tl.maximum(y, 0) * step_y
        y_step = at_y.to(tl.int32)
        share_y = _share(y_step, at_y, row, (y >= 0) & (y < big_height) & (node < nodes))
        west = _row(nw, w, sw, y_step[None], row[None], at_y[None])
        centre = _row(n, c, s, y_step[None], row[None], at_y[None])
        east = _row(ne, e, se, y_step[None], row[None], at_y[None])
        for dx in range(WINDOW_X):
            x = first_x + dx
            at_x = tl.maximum(x, 0) * step_x
            x_step = at_x.to(tl.int32)
            share = share_y * _share(x_step, at_x, column, (x >= 0) & (x < big_width))
            pixel = picture.to(tl.int64) * big_height * big_width + y * big_width + x
            counts = share > 0
            label = tl.load(labels + pixel, mask=counts, other=-1)
            log_total = tl.load(log_totals + pixel, mask=counts, other=0.0)
            share *= tl.load(pixel_weights + pixel, mask=counts, other=0.0)
            score = _row(west, centre, east, x_step[None], column[None], at_x[None])
            # Places that do not count may have any score: a bound keeps 0 times infinity from being a number's end.
            probability = tl.exp(tl.minimum(score - log_total[None], 0.0))
            gradient += share[None] * (probability - tl.where(label[None] == channel, 1.0, 0.0))
    gradient *= tl.load(upstream + picture)
    tl.store(gradients + (picture.to(tl.int64) * CHANNELS + channel) * nodes + node[None], gradient, mask=real)


class FusedCrossEntropy(torch.autograd.Function):
    """`enlarged_cross_entropy` with its gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
        logits, labels = logits.contiguous(), labels.contiguous()
        batch, channels, height, width = logits.shape
        big_height, big_width = labels.shape[-2:]
        pixels = big_height * big_width
        blocks = triton.cdiv(pixels, _PIXELS)
        sums = logits.new_empty(batch, blocks)
        log_totals, pixel_weights = logits.new_empty(2, batch, big_height, big_width)
        steps = _steps(logits, labels)
        _forwards[(blocks, batch)](
            logits, labels, class_weights.float().contiguous(), sums, log_totals, pixel_weights,
            height, width, big_height, big_width, *steps, CHANNELS=channels, BLOCK=_PIXELS,
        )  # fmt: skip
        ctx.save_for_backward(logits, labels, log_totals, pixel_weights)
        return sums.sum(1) / pixels

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        logits, labels, log_totals, pixel_weights = ctx.saved_tensors
        batch, channels, height, width = logits.shape
        big_height, big_width = labels.shape[-2:]
        steps = _steps(logits, labels)
        pitches = [1 / step for step in steps]
        gradients = torch.empty_like(logits)
        grid = (triton.cdiv(height * width, _NODES), triton.cdiv(channels, _CHANNELS), batch)
        _backwards[grid](
            logits, labels, log_totals, pixel_weights, (upstream / (big_height * big_width)).contiguous(), gradients,
            height, width, big_height, big_width, *steps, *pitches, *(floor(2 * pitch + 2e-3) + 1 for pitch in pitches),
            CHANNELS=channels, GROUP=_CHANNELS, BLOCK=_NODES,
        )  # fmt: skip
        return gradients, None, None


def _steps(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """How far on the small map a pixel is from the next, down and across."""
    small, big = logits.shape[-2:], labels.shape[-2:]
    return (small[0] - 1) / (big[0] - 1), (small[1] - 1) / (big[1] - 1)
