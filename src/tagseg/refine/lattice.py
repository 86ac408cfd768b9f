"""Gaussian filtering in many dimensions at a cost linear in the number of pixels: the permutohedral lattice.

Adams, Baek and Davis, "Fast High-Dimensional Filtering Using the Permutohedral Lattice", 2010. A pixel with d features
lies in a simplex with d + 1 corners. Filtering spreads the pixels' values onto the corners (splat), smooths along the
d + 1 axes of the lattice (blur) and reads the pixels back (slice). Every step is linear and depends on the features
alone, so each is a sparse matrix that is built once and then applied to any number of channels.
"""

from dataclasses import dataclass
from itertools import zip_longest
from math import prod

import torch
from torch import Tensor

from tagseg.refine._simplex import barycentric, elevate, enclosing_simplex
from tagseg.refine._sparse import EqualRows, SparseRows


@dataclass(frozen=True)
class Lattice:
    """The steps of one filter as sparse matrices.

    Attributes:
        splat: from the pixels to the lattice points.
        blurs: from the points to the points, one for each axis, to be applied in this order.
        slice: from the points back to the pixels.
    """

    splat: SparseRows
    blurs: tuple[EqualRows, ...]
    slice: EqualRows

    def spread(self, values: Tensor) -> Tensor:
        """Splat and blur values [pixels, channels]: what `slice` has still to read, [points, channels]."""
        points = self.splat @ values
        for blur in self.blurs:
            points = blur @ points
        return points

    def filter(self, values: Tensor) -> Tensor:
        """Replace each pixel's values [pixels, channels] by a sum over all pixels, weighted by nearness in features."""
        return self.slice @ self.spread(values)


def build_lattice(features: Tensor, pictures: int = 1) -> Lattice:
    """The lattice that filters with a Gaussian of standard deviation 1 in each of the features.

    Args:
        features: float32 [d, pixels], one picture's pixels after another's.
        pictures: how many pictures there are, all of one size; each is filtered by itself.
    """
    dims, pixels = features.shape
    origin, rank, offset = enclosing_simplex(elevate(features))
    strides, codes = _corner_codes(origin, rank, pictures)
    weights = barycentric(rank, offset)

    # One sort names the lattice points and lists the pixels around each of them.
    sorted_codes, order = codes.flatten().sort(stable=True)
    is_first = torch.ones_like(sorted_codes, dtype=torch.bool)
    is_first[1:] = sorted_codes[1:] != sorted_codes[:-1]
    starts = is_first.nonzero().squeeze(1)
    point_of_corner = torch.empty_like(order).scatter_(0, order, is_first.cumsum(0) - 1).view(dims + 1, pixels)

    splat = SparseRows(columns=order.int() % pixels, starts=starts.int(), weights=weights.flatten().gather(0, order))
    blurs = _blurs(sorted_codes[starts], _axis_shifts(strides))
    # The blurs add up to more than 1; this factor of the reference implementation brings the sum back near 1.
    weights = weights.T.div(1 + 2.0**-dims).contiguous()
    return Lattice(splat, blurs, EqualRows(point_of_corner.T.int().contiguous(), weights))


def repeat(lattice: Lattice, pictures: int) -> Lattice:
    """The lattice that filters each of several pictures as this one filters a single picture."""
    if pictures == 1:
        return lattice
    splat, read = lattice.splat, lattice.slice
    points, pixels, entries = len(splat.starts), len(read.columns), len(splat.columns)

    def shifted(indices: Tensor, step: int) -> Tensor:
        return torch.cat([indices + picture * step for picture in range(pictures)])

    return Lattice(
        SparseRows(shifted(splat.columns, pixels), shifted(splat.starts, entries), splat.weights.repeat(pictures)),
        tuple(EqualRows(shifted(blur.columns, points), blur.weights.repeat(pictures, 1)) for blur in lattice.blurs),
        EqualRows(shifted(read.columns, points), read.weights.repeat(pictures, 1)),
    )


def add(left: Lattice, right: Lattice) -> Lattice:
    """The lattice that gives the sum of what two filters give, in as many steps as the longer of them."""
    points, entries = len(left.splat.starts), len(left.splat.columns)

    def stacked(above: EqualRows, below: EqualRows) -> EqualRows:
        return EqualRows(torch.cat([above.columns, below.columns + points]), torch.cat([above.weights, below.weights]))

    return Lattice(
        SparseRows(
            torch.cat([left.splat.columns, right.splat.columns]),
            torch.cat([left.splat.starts, right.splat.starts + entries]),
            torch.cat([left.splat.weights, right.splat.weights]),
        ),
        tuple(
            stacked(above or _rest(left.blurs[0]), below or _rest(right.blurs[0]))
            for above, below in zip_longest(left.blurs, right.blurs)
        ),
        EqualRows(
            torch.cat([left.slice.columns, right.slice.columns + points], 1),
            torch.cat([left.slice.weights, right.slice.weights], 1),
        ),
    )


def _corner_codes(origin: Tensor, rank: Tensor, pictures: int) -> tuple[list[int], Tensor]:
    """Give every lattice point one number, so that points compare and sort as integers.

    A point's number is the sum of coordinate * stride. It is linear, so that a step along an axis of the lattice adds
    the same amount everywhere. The coordinates of a point all leave the same remainder modulo d + 1. The strides leave
    room for the quotients only; their own sum is 1 modulo d + 1, so the number tells the remainder as well. Each
    picture has a range of numbers to itself.

    Args:
        origin: the corner of each pixel's simplex whose remainder is 0, in units of d + 1, [d + 1, pixels].
        rank: the order of the coordinates in the simplex, [d + 1, pixels].
        pictures: how many pictures the pixels belong to.

    Returns:
        The stride of each of the d + 1 coordinates, and the numbers of the corners, integers [d + 1, pixels].
    """
    size = len(origin)
    free = origin[:-1]  # the last coordinate follows from the others, as they sum to 0
    low = free.amin(1)
    # Corners, and the neighbours that are looked up, reach two steps below and one above the origins.
    widths = [extent + 4 for extent in (free.amax(1) - low).tolist()]
    widths[-1] += -widths[-1] % size
    span = prod(widths) * size  # of the numbers of one picture
    if span * pictures >= 2**62:
        raise ValueError(f"the features span {prod(widths):.0e} lattice cells, allowed are 1e17; widen the filter")
    strides = [prod(widths[axis + 1 :]) for axis in range(size - 1)] + [0]

    # Sorting 32-bit numbers takes half the time, and they nearly always suffice.
    integer = torch.int32 if span * pictures < 2**30 else torch.int64
    stride = torch.tensor(strides, device=origin.device)
    codes = torch.empty_like(origin, dtype=integer)
    codes[0] = size * ((free - (low - 2)[:, None]) * stride[:-1, None]).sum(0)
    codes[0].view(pictures, -1).add_(span * torch.arange(pictures, device=codes.device)[:, None])
    # From one corner to the next every coordinate gains 1, except that one, the last in rank first, loses d instead.
    losing = torch.empty_like(codes).scatter_(0, size - 1 - rank, stride.to(integer)[:, None].expand_as(rank))
    for corner in range(1, size):
        codes[corner] = codes[corner - 1] + (sum(strides) - size * losing[corner - 1])
    return strides, codes


def _axis_shifts(strides: list[int]) -> list[int]:
    """What a step along each lattice axis adds to a point's number: that coordinate gains d, all others lose 1."""
    return [len(strides) * stride - sum(strides) for stride in strides]


def _blurs(points: Tensor, shifts: list[int]) -> tuple[EqualRows, ...]:
    """For each axis the matrix that adds to a point half of its two neighbours there, as far as they exist.

    Args:
        points: the numbers of the lattice points, ascending.
        shifts: what a step along each axis adds to a point's number.
    """
    axes, count = len(shifts), len(points)
    sought = points + points.new_tensor(shifts)[:, None]
    ahead = torch.searchsorted(points, sought).clamp_(max=count - 1)
    exists = points[ahead] == sought
    # A missing neighbour has no weight; that it points to the row itself costs no memory traffic.
    here = torch.arange(count, device=points.device).expand(axes, count)
    forward = torch.where(exists, ahead, here)
    # What has no point ahead is noted in a place beyond the last, which is then cut off.
    backward = torch.arange(count + 1, device=points.device).repeat(axes, 1)
    backward.scatter_(1, torch.where(exists, ahead, count), here)
    columns = torch.stack([here, forward, backward[:, :-1]], 2).int()
    weights = (columns != columns[..., :1]).float() * 0.5
    weights[..., 0] = 1
    return tuple(EqualRows(*matrix) for matrix in zip(columns, weights, strict=True))


def _rest(blur: EqualRows) -> EqualRows:
    """A step of the same shape that changes nothing."""
    columns, weights = torch.empty_like(blur.columns), torch.zeros_like(blur.weights)
    columns.copy_(blur.columns[:, :1])
    weights[:, 0] = 1
    return EqualRows(columns, weights)
