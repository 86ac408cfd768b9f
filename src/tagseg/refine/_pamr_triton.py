"""PAMR on a GPU without gradients, as Triton kernels: one for the affinities and one for an iteration.

The masks are packed in groups of four, pixel after pixel, [B, groups, H * W, 4], so that a thread loads a neighbor of
four masks at once. The masks to refine come first: the kernels skip the groups after them, and the host need not know
their number.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_GROUP = 4  # adjacent masks: 16 bytes, the most that a thread loads at once
_WARPS = 8  # of a program that computes an iteration
_PIXELS = 32 * _WARPS  # one per thread: with more, threads would exchange affinities
_AFFINITY_PIXELS, _AFFINITY_WARPS = 16, 2  # of a program that computes affinities


def refine(
    image: Tensor, masks: Tensor, present: Tensor | None, *, dilations: Sequence[int], iterations: int, kernel: str
) -> Tensor:
    """Refine masks of the image's size, in single precision; see `pamr`."""
    batch, classes, height, width = masks.shape
    dilations, pixels = tuple(dilations), height * width
    masks = masks.contiguous()
    refined = torch.empty_like(masks) if present is None else masks.clone()
    planes, counts = _planes_to_refine(masks, present)
    with torch.cuda.device_of(masks):  # Triton launches kernels on the current GPU
        weights = affinities(image, dilations, kernel)
        source = masks.new_empty(batch, triton.cdiv(classes, _GROUP), pixels, _GROUP, dtype=torch.float32)
        target = torch.empty_like(source)
        grid = (triton.cdiv(pixels, _PIXELS), batch)
        _pack[grid](masks, planes, counts, source, classes, pixels, _PIXELS, _GROUP, num_warps=_WARPS)
        for iteration in range(1, iterations + 1):
            last = iteration == iterations
            _weighted_mean[grid](
                source, weights, planes, counts, refined if last else target, classes, height, width,
                dilations, len(dilations), last, _PIXELS, _GROUP, num_warps=_WARPS,
            )  # fmt: skip
            source, target = target, source
    return refined


def affinities(image: Tensor, dilations: tuple[int, ...], kernel: str) -> Tensor:
    """Compute each pixel's affinities to its neighbors, float32 [B, neighbors, H, W]."""
    image = image.contiguous()
    batch, channels, height, width = image.shape
    neighbors = 8 * len(dilations)
    weights = image.new_empty(batch, neighbors, height, width, dtype=torch.float32)
    _affinities[(triton.cdiv(height * width, _AFFINITY_PIXELS), batch)](
        image, weights, channels, height, width, dilations, len(dilations), triton.next_power_of_2(neighbors),
        kernel == "reference", _AFFINITY_PIXELS, num_warps=_AFFINITY_WARPS,
    )  # fmt: skip
    return weights


def _planes_to_refine(masks: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the indices of each sample's masks, those to refine first, and their number: int32 [B, C] and [B]."""
    batch, classes = masks.shape[:2]
    if present is None:
        planes = torch.arange(classes, device=masks.device, dtype=torch.int32).repeat(batch, 1)
        return planes, planes.new_full((batch,), classes)
    planes = present.int().argsort(dim=1, descending=True, stable=True)
    return planes.int(), present.sum(1, dtype=torch.int32)


# Image sizes vary and kernels take seconds to compile, so one kernel serves all sizes.
@triton.jit(do_not_specialize=["classes", "pixels"])  # type: ignore[untyped-decorator]
def _pack(  # type: ignore[no-untyped-def]
    masks, planes, counts, packed, classes, pixels, block: tl.constexpr, group: tl.constexpr
):
    """Copy the masks to refine into groups."""
    sample = tl.program_id(1).to(tl.int64)
    pixel = (tl.program_id(0) * block + tl.arange(0, block))[:, None]
    lane = tl.arange(0, group)[None, :]
    count = tl.load(counts + sample)
    packed += sample * tl.cdiv(classes, group) * pixels * group
    for first in range(0, count, group):
        plane = tl.load(planes + sample * classes + first + lane, mask=first + lane < count, other=0)
        inside = (pixel < pixels) & (first + lane < count)
        values = tl.load(masks + (sample * classes + plane) * pixels + pixel, mask=inside, other=0.0)
        tl.store(packed + pixel * group + lane, values, mask=pixel < pixels)
        packed += pixels * group


@triton.jit(do_not_specialize=["classes", "height", "width"])  # type: ignore[untyped-decorator]
def _weighted_mean(  # type: ignore[no-untyped-def]
    packed, weights, planes, counts, target, classes, height, width,
    dilations: tl.constexpr, dilations_count: tl.constexpr, unpack: tl.constexpr,
    block: tl.constexpr, group: tl.constexpr,
):  # fmt: skip
    """Compute one iteration for a block of pixels and all masks of its image; the last one unpacks the groups."""
    sample = tl.program_id(1).to(tl.int64)
    pixels = height * width
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    exists = pixel < pixels
    row, column = pixel // width, pixel % width
    lane = tl.arange(0, group)[None, :]
    count = tl.load(counts + sample)
    weights += sample * (8 * dilations_count) * pixels
    packed += sample * tl.cdiv(classes, group) * pixels * group
    target += sample * (classes if unpack else tl.cdiv(classes, group) * group) * pixels
    for first in range(0, count, group):
        weight_plane = weights
        mean = tl.zeros([block, group], tl.float32)
        # This loop is not unrolled: 48 loads at once would use so many registers that occupancy drops.
        for index in range(dilations_count):
            dilation = _choose(dilations, dilations_count, index)
            for offset in tl.static_range(8):
                cell = offset + offset // 4  # in the 3x3 neighborhood, without its center
                neighbor_row = tl.minimum(tl.maximum(row + (cell // 3 - 1) * dilation, 0), height - 1)
                neighbor_column = tl.minimum(tl.maximum(column + (cell % 3 - 1) * dilation, 0), width - 1)
                address = neighbor_row * width + neighbor_column
                weight = tl.load(weight_plane + pixel, mask=exists, other=0.0)
                # Eq. 7
                mean += weight[:, None] * tl.load(packed + address[:, None] * group + lane)
                weight_plane += pixels
        if unpack:
            inside = exists[:, None] & (first + lane < count)
            plane = tl.load(planes + sample * classes + first + lane, mask=first + lane < count, other=0).to(tl.int64)
            tl.store(target + plane * pixels + pixel[:, None], mean, mask=inside)
        else:
            tl.store(target + pixel[:, None] * group + lane, mean, mask=exists[:, None])
            target += pixels * group
        packed += pixels * group


@triton.jit(do_not_specialize=["channels", "height", "width"])  # type: ignore[untyped-decorator]
def _affinities(  # type: ignore[no-untyped-def]
    image, weights, channels, height, width,
    dilations: tl.constexpr, dilations_count: tl.constexpr, neighbors: tl.constexpr,
    reference: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute the affinities of a block of pixels to all their neighbors at once, [neighbors, block]."""
    sample = tl.program_id(1).to(tl.int64)
    pixels = height * width
    pixel = (tl.program_id(0) * block + tl.arange(0, block))[None, :]
    exists = pixel < pixels
    neighbor = tl.arange(0, neighbors)[:, None]
    is_neighbor = neighbor < 8 * dilations_count
    dilation = _choose(dilations, dilations_count, neighbor // 8)
    cell = neighbor % 8 + neighbor % 8 // 4  # in the 3x3 neighborhood, without its center
    row = tl.minimum(tl.maximum(pixel // width + (cell // 3 - 1) * dilation, 0), height - 1)
    column = tl.minimum(tl.maximum(pixel % width + (cell % 3 - 1) * dilation, 0), width - 1)
    distance = tl.zeros([neighbors, block], tl.float32)
    values = 9 * dilations_count  # the center counts once per dilation
    for channel in range(channels):
        plane = image + (sample * channels + channel) * pixels
        center = tl.load(plane + pixel, mask=exists, other=0.0).to(tl.float32)
        # Neighbors that pad to a power of two have dilation 0: they are the center, and their difference is 0.
        difference = tl.load(plane + row * width + column).to(tl.float32) - center
        total, squares = tl.sum(difference, 0), tl.sum(difference * difference, 0)
        variance = tl.maximum((squares - total * total / values) / (values - 1), 0.0)  # Eq. 8, sigma squared
        scale = 1e-8 + (0.1 * tl.sqrt(variance) if reference else variance)
        distance += tl.abs(difference) / scale[None, :]  # Eq. 8
    affinity = tl.where(is_neighbor, -distance / channels, float("-inf"))
    exps = tl.exp(affinity - tl.max(affinity, 0)[None, :])
    target = weights + (sample * (8 * dilations_count) + neighbor) * pixels + pixel
    # alpha of Eq. 7
    tl.store(target, exps / tl.sum(exps, 0)[None, :], mask=is_neighbor & exists)


@triton.jit  # type: ignore[untyped-decorator]
def _choose(values: tl.constexpr, count: tl.constexpr, index):  # type: ignore[no-untyped-def]
    """Return the value at each index, 0 beyond the last."""
    result = index * 0
    for known in tl.static_range(count):
        result = tl.where(index == known, values[known], result)
    return result
