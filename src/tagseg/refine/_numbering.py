"""One number for every point of a lattice, so that points compare and sort as integers.

A point's number is the sum of coordinate * stride. It is linear, so that a step along an axis of the lattice adds the
same amount everywhere. The coordinates of a point all leave the same remainder modulo d + 1. The strides leave room for
the quotients only; their own sum is 1 modulo d + 1, so the number tells the remainder as well. Each image has a range
of numbers to itself.
"""

from collections.abc import Sequence
from math import ceil, floor, prod

import torch
from torch import Tensor

from tagseg._device import to_device
from tagseg.refine._simplex import elevation_factors

Range = tuple[float, float]


def numbering_table(ranges: Sequence[Range], images: int, device: torch.device) -> Tensor:
    """Number all points that features can come near to.

    Args:
        ranges: the least and the largest value of each feature, over all images.
        images: how many there are.
        device: where the table is needed.

    Returns:
        Integers that can hold all numbers, [d + 2, 5]. A row for each axis: what a number gains with the coordinate,
        the least coordinate in units of d + 1, and what a number gains by no step, by one forward and by one back along
        the axis. The last row begins with the number of the point with the least coordinates, and with how many numbers
        an image has.
    """
    size = len(ranges) + 1
    reaches = [_reach(ranges, axis) for axis in range(size - 1)]
    # Rounding moves an origin by up to one step. Corners, and the neighbours that are looked up, reach two steps below
    # and one above the origins.
    lows = [floor(low) - 1 for low, _ in reaches]
    widths = [ceil(high) + 1 - low + 4 for (_, high), low in zip(reaches, lows, strict=True)]
    widths[-1] += -widths[-1] % size
    span = prod(widths) * size
    if span * images >= 2**62:
        raise ValueError(
            f"the features can span {images * prod(widths):.0e} lattice cells, allowed are 1e17; widen the filter"
        )
    # The last coordinate follows from the others, as they sum to 0.
    strides = [size * prod(widths[axis + 1 :]) for axis in range(size - 1)] + [0]
    # A step back along an axis: that coordinate loses d, and all others gain 1.
    back = [sum(strides) // size - stride for stride in strides]
    rows = [[stride, low, 0, -step, step] for stride, low, step in zip(strides, [*lows, 0], back, strict=True)]
    # Sorting 32-bit numbers takes half the time, and they nearly always suffice.
    dtype = torch.int32 if span * images < 2**30 else torch.int64
    return to_device([*rows, [2 * sum(strides), span, 0, 0, 0]], dtype, device)


def _reach(ranges: Sequence[Range], axis: int) -> Range:
    """The least and the largest coordinate of elevated features along an axis, in units of d + 1."""
    factors = elevation_factors(len(ranges))
    scaled = [(low * factor, high * factor) for (low, high), factor in zip(ranges, factors, strict=True)]
    own_low, own_high = scaled[axis - 1] if axis else (0.0, 0.0)
    low = sum(low for low, _ in scaled[axis:]) - axis * own_high
    high = sum(high for _, high in scaled[axis:]) - axis * own_low
    size = len(ranges) + 1
    return low / size, high / size
