"""One number for every point of a lattice, so that points compare and sort as integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, prod

import torch
from torch import Tensor

from tagseg._device import to_device
from tagseg.refine._simplex import elevation_factors

Range = tuple[float, float]


@dataclass(frozen=True)
class Numbering:
    """How points of the lattices of one or more pictures are numbered.

    A point's number is the sum of coordinate * stride. It is linear, so that a step along an axis of the lattice adds
    the same amount everywhere. The coordinates of a point all leave the same remainder modulo d + 1. The strides leave
    room for the quotients only; their own sum is 1 modulo d + 1, so the number tells the remainder as well. Each
    picture has a range of numbers to itself.

    Attributes:
        lows: the least coordinate, in units of d + 1, of each axis.
        strides: what a number gains with each coordinate; 0 for the last, which follows from the others.
        back: what a number gains by a step back along each axis: that coordinate loses d, and all others gain 1.
        first: the number of the point with the least coordinates.
        span: how many numbers a picture has.
        dtype: the integers that hold them.
    """

    lows: list[int]
    strides: list[int]
    back: list[int]
    first: int
    span: int
    dtype: torch.dtype

    def table(self, device: torch.device) -> Tensor:
        """A row for each axis: stride, least coordinate, and what no step, one forward and one back gain, [d + 1, 5].

        One more row has the first number and the span in front.
        """
        rows = [
            [stride, low, 0, -step, step] for stride, low, step in zip(self.strides, self.lows, self.back, strict=True)
        ]
        return to_device([*rows, [self.first, self.span, 0, 0, 0]], self.dtype, device)


def number_points(ranges: Sequence[Range], pictures: int) -> Numbering:
    """Number all points that features can come near to.

    Args:
        ranges: the least and the largest value of each feature, over all pictures.
        pictures: how many there are.
    """
    size = len(ranges) + 1
    reaches = [_reach(ranges, axis) for axis in range(size - 1)]
    # Rounding moves an origin by up to one step. Corners, and the neighbours that are looked up, reach two steps below
    # and one above the origins.
    lows = [floor(low) - 1 for low, _ in reaches]
    widths = [ceil(high) + 1 - low + 4 for (_, high), low in zip(reaches, lows, strict=True)]
    widths[-1] += -widths[-1] % size
    span = prod(widths) * size
    if span * pictures >= 2**62:
        raise ValueError(f"the features span {prod(widths):.0e} lattice cells, allowed are 1e17; widen the filter")
    strides = [size * prod(widths[axis + 1 :]) for axis in range(size - 1)] + [0]
    back = [sum(strides) // size - stride for stride in strides]
    # Sorting 32-bit numbers takes half the time, and they nearly always suffice.
    dtype = torch.int32 if span * pictures < 2**30 else torch.int64
    return Numbering([*lows, 0], strides, back, 2 * sum(strides), span, dtype)


def _reach(ranges: Sequence[Range], axis: int) -> Range:
    """The least and the largest coordinate of elevated features along an axis, in units of d + 1."""
    factors = elevation_factors(len(ranges))
    scaled = [(low * factor, high * factor) for (low, high), factor in zip(ranges, factors, strict=True)]
    own_low, own_high = scaled[axis - 1] if axis else (0.0, 0.0)
    size = len(ranges) + 1
    low = sum(low for low, _ in scaled[axis:]) - axis * own_high
    high = sum(high for _, high in scaled[axis:]) - axis * own_low
    return low / size, high / size
