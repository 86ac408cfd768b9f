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
_NODES = 128  # of a program, backwards, for one class


@triton.jit
def _between(place, last):  # type: ignore[no-untyped-def]
    """The nodes before and after a place on the small map's axis, and how far it is from the first."""
    before = place.to(tl.int32)
    return before, tl.minimum(before + 1, last), place - before


@triton.jit  # type: ignore[untyped-decorator]
def _forwards(  # type: ignore[no-untyped-def]
    logits, labels, class_weights, sums, log_totals, pixel_weights, height, width, big_height, big_width,
    step_y, step_x, channels, block: tl.constexpr,
):  # fmt: skip
    part, picture = tl.program_id(0), tl.program_id(1).to(tl.int64)
    pixels, nodes = big_height * big_width, height * width
    pixel = part * block + tl.arange(0, block)
    inside = pixel < pixels
    at = picture * pixels + pixel
    label = tl.load(labels + at, mask=inside, other=-1)
    weight = tl.load(class_weights + picture * channels + label, mask=inside & (label >= 0), other=0.0)

    top, bottom, down = _between((pixel // big_width) * step_y, height - 1)
    left, right, across = _between((pixel % big_width) * step_x, width - 1)
    plane = logits + picture * channels * nodes
    highest = tl.full([block], float("-inf"), tl.float32)
    total = tl.zeros([block], tl.float32)
    own = tl.zeros([block], tl.float32)
    for channel in range(channels):
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
    tl.store(sums + picture * tl.num_programs(0) + part, tl.sum(loss))


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


@triton.jit  # type: ignore[untyped-decorator]
def _backwards(  # type: ignore[no-untyped-def]
    logits, labels, log_totals, pixel_weights, upstream, gradients, height, width, big_height, big_width,
    step_y, step_x, pitch_y, pitch_x, window_y, window_x, block: tl.constexpr,
):  # fmt: skip
    channel, picture = tl.program_id(1), tl.program_id(2).to(tl.int64)
    nodes = height * width
    node = tl.program_id(0) * block + tl.arange(0, block)
    exists = node < nodes
    row, column = node // width, node % width
    offset = (picture * tl.num_programs(1) + channel) * nodes
    plane = logits + offset

    up, down = tl.maximum(row - 1, 0) * width, tl.minimum(row + 1, height - 1) * width
    left, right, middle = tl.maximum(column - 1, 0), tl.minimum(column + 1, width - 1), row * width
    nw = tl.load(plane + up + left, mask=exists, other=0.0)
    n = tl.load(plane + up + column, mask=exists, other=0.0)
    ne = tl.load(plane + up + right, mask=exists, other=0.0)
    w = tl.load(plane + middle + left, mask=exists, other=0.0)
    c = tl.load(plane + middle + column, mask=exists, other=0.0)
    e = tl.load(plane + middle + right, mask=exists, other=0.0)
    sw = tl.load(plane + down + left, mask=exists, other=0.0)
    s = tl.load(plane + down + column, mask=exists, other=0.0)
    se = tl.load(plane + down + right, mask=exists, other=0.0)

    # The pixels that a node takes part in lie between its two neighbours; 1e-3 is more than rounding can move them.
    first_y = tl.ceil((row - 1) * pitch_y - 1e-3).to(tl.int32)
    first_x = tl.ceil((column - 1) * pitch_x - 1e-3).to(tl.int32)
    gradient = tl.zeros([block], tl.float32)
    for dy in range(window_y):
        y = first_y + dy
        at_y = tl.maximum(y, 0) * step_y
        y_step = at_y.to(tl.int32)
        share_y = _share(y_step, at_y, row, (y >= 0) & (y < big_height) & exists)
        west = _row(nw, w, sw, y_step, row, at_y)
        centre = _row(n, c, s, y_step, row, at_y)
        east = _row(ne, e, se, y_step, row, at_y)
        for dx in range(window_x):
            x = first_x + dx
            at_x = tl.maximum(x, 0) * step_x
            x_step = at_x.to(tl.int32)
            share = share_y * _share(x_step, at_x, column, (x >= 0) & (x < big_width))
            pixel = picture * big_height * big_width + y * big_width + x
            counts = share > 0
            label = tl.load(labels + pixel, mask=counts, other=-1)
            log_total = tl.load(log_totals + pixel, mask=counts, other=0.0)
            share *= tl.load(pixel_weights + pixel, mask=counts, other=0.0)
            score = _row(west, centre, east, x_step, column, at_x)
            # Where nothing counts a score may be too large for its power, and 0 times infinity would not be 0.
            probability = tl.exp(tl.minimum(score - log_total, 0.0))
            gradient += share * (probability - tl.where(label == channel, 1.0, 0.0))
    gradient *= tl.load(upstream + picture)
    tl.store(gradients + offset + node, gradient, mask=exists)


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
            height, width, big_height, big_width, *steps, channels, block=_PIXELS,
        )  # fmt: skip
        ctx.save_for_backward(logits, labels, log_totals, pixel_weights)
        return sums.sum(1) / pixels

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, log_totals, pixel_weights = ctx.saved_tensors
        batch, channels, height, width = logits.shape
        big_height, big_width = labels.shape[-2:]
        steps = _steps(logits, labels)
        pitches = [1 / step for step in steps]
        gradients = torch.empty_like(logits)
        grid = (triton.cdiv(height * width, _NODES), channels, batch)
        _backwards[grid](
            logits, labels, log_totals, pixel_weights, (upstream / (big_height * big_width)).contiguous(), gradients,
            height, width, big_height, big_width, *steps, *pitches, *(floor(2 * pitch + 2e-3) + 1 for pitch in pitches),
            block=_NODES,
        )  # fmt: skip
        return gradients, None, None


def _steps(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """How far on the small map a pixel is from the next, down and across."""
    small, big = logits.shape[-2:], labels.shape[-2:]
    return (small[0] - 1) / (big[0] - 1), (small[1] - 1) / (big[1] - 1)
