"""Gaussian filtering in many dimensions at a cost linear in the number of pixels: the permutohedral lattice.

Adams, Baek and Davis, "Fast High-Dimensional Filtering Using the Permutohedral Lattice", 2010. A pixel with d features
lies in a simplex with d + 1 corners. Filtering spreads the pixels' values onto the corners (splat), smooths along the
d + 1 axes of the lattice (blur) and reads the pixels back (slice). Every step is linear and depends on the features
alone, so each is a sparse matrix that is built once and then applied to any number of channels.
"""

from dataclasses import dataclass, replace
from math import prod, sqrt

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix, stored row by row, that multiplies a dense one.

    Attributes:
        columns: the column of every entry, row after row, int32 [entries].
        starts: the position of every row's first entry, int32 [rows].
        weights: the value of every entry, [entries].
    """

    columns: Tensor
    starts: Tensor
    weights: Tensor

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product with `dense` [columns, channels]: a weighted sum of its rows for each row of this matrix."""
        # Summing weighted rows of a table is what an embedding bag does, and torch has it fast on every device.
        return F.embedding_bag(self.columns, dense, self.starts, mode="sum", per_sample_weights=self.weights)

    def scale_columns(self, factors: Tensor) -> "SparseRows":
        """This matrix times the diagonal one of `factors` [columns]."""
        return replace(self, weights=self.weights * factors[self.columns])


@dataclass(frozen=True)
class Lattice:
    """The steps of one filter as sparse matrices.

    Attributes:
        splat: from the pixels to the lattice points.
        blurs: from the points to the points, one for each axis, to be applied in this order.
        slice: from the points back to the pixels.
    """

    splat: SparseRows
    blurs: tuple[SparseRows, ...]
    slice: SparseRows

    def spread(self, values: Tensor) -> Tensor:
        """Splat and blur values [pixels, channels]: what `slice` has still to read, [points, channels]."""
        points = self.splat @ values
        for blur in self.blurs:
            points = blur @ points
        return points

    def filter(self, values: Tensor) -> Tensor:
        """Replace each pixel's values [pixels, channels] by a sum over all pixels, weighted by nearness in features."""
        return self.slice @ self.spread(values)


def build_lattice(features: Tensor) -> Lattice:
    """The lattice that filters with a Gaussian of standard deviation 1 in each of the features.

    Args:
        features: float32 [d, pixels].
    """
    dims, pixels = features.shape
    origin, rank, offset = _enclosing_simplex(_elevate(features))
    strides, codes = _corner_codes(origin, rank)
    weights = _barycentric(rank, offset)

    # One sort names the lattice points and lists the pixels around each of them.
    sorted_codes, order = codes.flatten().sort(stable=True)
    points, point_of_sorted, members = torch.unique_consecutive(sorted_codes, return_inverse=True, return_counts=True)
    point_of_corner = torch.empty_like(order).scatter_(0, order, point_of_sorted).view(dims + 1, pixels)

    splat = SparseRows(
        columns=order.int() % pixels,
        starts=(members.cumsum(0) - members).int(),
        weights=weights.flatten().gather(0, order),
    )
    blurs = tuple(_blur(points, shift) for shift in _axis_shifts(strides))
    # The blurs add up to more than 1; this factor of the reference implementation brings the sum back near 1.
    return Lattice(splat, blurs, equal_rows(point_of_corner.T, weights.T / (1 + 2.0**-dims)))


def equal_rows(columns: Tensor, weights: Tensor) -> SparseRows:
    """A sparse matrix whose rows all have the same number of entries, from columns and weights [rows, entries]."""
    rows, entries = columns.shape
    starts = torch.arange(0, rows * entries, entries, device=columns.device, dtype=torch.int32)
    return SparseRows(columns.int().flatten(), starts, weights.flatten())


def _elevate(features: Tensor) -> Tensor:
    """Map features [d, pixels] onto the plane of R^(d+1) whose coordinates sum to 0, [d + 1, pixels].

    The scale makes splat, blur and slice together a Gaussian of standard deviation 1. Everything is rounded to float32
    where the reference implementation rounds, because features often fall exactly between two simplices.
    """
    dims = len(features)
    deviation = torch.tensor(sqrt(2 / 3) * (dims + 1), dtype=torch.float32).item()
    elevated = features.new_empty(dims + 1, features.shape[1])
    above = torch.zeros_like(features[0])
    for axis in range(dims, 0, -1):
        scaled = features[axis - 1] * (deviation / sqrt(axis * (axis + 1)))
        elevated[axis] = above - axis * scaled
        above = above + scaled
    elevated[0] = above
    return elevated


def _enclosing_simplex(elevated: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the simplex around each elevated feature [d + 1, pixels].

    Returns:
        The corner of the simplex whose coordinates are all multiples of d + 1, int64; the place of each coordinate when
        the offsets from that corner are sorted from large to small, int64; these offsets. The first and the last are in
        units of d + 1; all are [d + 1, pixels].
    """
    size = len(elevated)
    origin = (elevated * (1 / size)).round()
    offset = elevated - origin * size
    rank = torch.zeros_like(origin, dtype=torch.int8)
    for first in range(size):
        for second in range(first + 1, size):
            behind = offset[first] < offset[second]
            rank[first] += behind
            rank[second] += ~behind
    # Rounding can leave the plane; the coordinates that moved most go back by one step, and the order turns with them.
    rank += origin.sum(0).to(torch.int8)
    step = (rank < 0).to(torch.int8) - (rank >= size).to(torch.int8)
    rank += step * size
    origin += step
    offset = (elevated - origin * size) * (1 / size)
    return origin.long(), rank.long(), offset


def _barycentric(rank: Tensor, offset: Tensor) -> Tensor:
    """The weight of each of the d + 1 corners of a pixel's simplex, from offsets [d + 1, pixels]; they sum to 1."""
    ascending = torch.empty_like(offset).scatter_(0, len(rank) - 1 - rank, offset)
    weights = torch.empty_like(offset)
    weights[1:] = ascending[1:] - ascending[:-1]
    weights[0] = ascending[0] + (1 - ascending[-1])
    return weights


def _corner_codes(origin: Tensor, rank: Tensor) -> tuple[list[int], Tensor]:
    """Give every lattice point one number, so that points compare and sort as integers.

    A point's number is the sum of coordinate * stride. It is linear, so that a step along an axis of the lattice adds
    the same amount everywhere. The coordinates of a point all leave the same remainder modulo d + 1. The strides leave
    room for the quotients only; their own sum is 1 modulo d + 1, so the number tells the remainder as well.

    Args:
        origin: the corner of each pixel's simplex whose remainder is 0, in units of d + 1, [d + 1, pixels].
        rank: the order of the coordinates in the simplex, [d + 1, pixels].

    Returns:
        The stride of each of the d + 1 coordinates, and the numbers of the corners, integers [d + 1, pixels].
    """
    size = len(origin)
    free = origin[:-1]  # the last coordinate follows from the others, as they sum to 0
    low = free.amin(1)
    # Corners, and the neighbours that are looked up, reach two steps below and one above the origins.
    widths = [extent + 4 for extent in (free.amax(1) - low).tolist()]
    widths[-1] += -widths[-1] % size
    if prod(widths) * size >= 2**62:
        raise ValueError(f"the features span {prod(widths):.0e} lattice cells, allowed are 1e17; widen the filter")
    strides = [prod(widths[axis + 1 :]) for axis in range(size - 1)] + [0]

    # Sorting 32-bit numbers takes half the time, and they nearly always suffice.
    integer = torch.int32 if prod(widths) * size < 2**30 else torch.int64
    stride = torch.tensor(strides, device=origin.device)
    codes = torch.empty_like(origin, dtype=integer)
    codes[0] = size * ((free - (low - 2)[:, None]) * stride[:-1, None]).sum(0)
    # From one corner to the next every coordinate gains 1, except that one, the last in rank first, loses d instead.
    losing = torch.empty_like(codes).scatter_(0, size - 1 - rank, stride.to(integer)[:, None].expand_as(rank))
    for corner in range(1, size):
        codes[corner] = codes[corner - 1] + (sum(strides) - size * losing[corner - 1])
    return strides, codes


def _axis_shifts(strides: list[int]) -> list[int]:
    """What a step along each lattice axis adds to a point's number: that coordinate gains d, all others lose 1."""
    return [len(strides) * stride - sum(strides) for stride in strides]


def _blur(points: Tensor, shift: int) -> SparseRows:
    """Each point plus half of its two neighbours along one axis, as far as they exist.

    Args:
        points: the numbers of the lattice points, ascending.
        shift: what a step along the axis adds to a point's number.
    """
    here = torch.arange(len(points), device=points.device)
    ahead = torch.searchsorted(points, points + shift).clamp_(max=len(points) - 1)
    exists = points[ahead] == points + shift
    # A missing neighbour has no weight; that it points to the row itself costs no memory traffic.
    forward = torch.where(exists, ahead, here)
    backward = here.scatter(0, ahead[exists], here[exists])
    neighbours = torch.stack([here, forward, backward], 1)
    weights = (neighbours != here[:, None]).float() * 0.5
    weights[:, 0] = 1
    return equal_rows(neighbours, weights)
