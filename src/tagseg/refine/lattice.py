"""Gaussian filtering in many dimensions at a cost linear in the number of pixels: the permutohedral lattice.

Adams, Baek and Davis, "Fast High-Dimensional Filtering Using the Permutohedral Lattice", 2010. A pixel with d features
lies in a simplex with d + 1 corners. Filtering spreads the pixels' values onto the corners (splat), smooths along the
d + 1 axes of the lattice (blur) and reads the pixels back (slice). Every step is linear and depends on the features
alone, so each is a sparse matrix that is built once and then applied to any number of channels.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from tagseg._kernels import triton_runs
from tagseg.refine._simplex import barycentric, elevate, enclosing_simplex, to_device
from tagseg.refine._sparse import EqualRows, SparseRows, cut_into_pieces, shifted


@dataclass(frozen=True)
class Lattice:
    """The steps of one filter as sparse matrices.

    Attributes:
        splat: from the pixels to the lattice points.
        blurs: from the points to the points, one for each axis, to be applied in this order: [axes, points, entries].
        slice: from the points back to the pixels.
    """

    splat: SparseRows
    blurs: EqualRows
    slice: EqualRows

    def spread(self, values: Tensor) -> Tensor:
        """Splat and blur values [pixels, channels]: what `slice` has still to read, [points, channels]."""
        points = self.splat @ values
        for blur in self._blur_of_axis:
            points = blur @ points
        return points

    @cached_property
    def _blur_of_axis(self) -> list[EqualRows]:
        return [EqualRows(*blur) for blur in zip(self.blurs.columns, self.blurs.weights, strict=True)]

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
    origin, place, offset = enclosing_simplex(elevate(features))
    codes, neighbours = _corner_codes(origin, place, pictures)
    weights = barycentric(place, offset)

    # One sort names the lattice points and lists the pixels around each of them.
    sorted_codes, order = codes.flatten().sort(stable=True)
    is_first = torch.ones_like(sorted_codes, dtype=torch.bool)
    torch.ne(sorted_codes[1:], sorted_codes[:-1], out=is_first[1:])
    firsts = is_first.nonzero().squeeze(1)
    point = is_first.cumsum(0, dtype=torch.int32).sub_(1)
    point_of_corner = torch.empty_like(point).scatter_(0, order, point).view(dims + 1, pixels)

    starts = firsts.int()
    pieces = cut_into_pieces(starts, len(order)) if triton_runs(starts) else None
    splat = SparseRows(order.remainder(pixels).int(), starts, weights.flatten().gather(0, order), pieces)
    blurs = _blurs(sorted_codes[firsts], neighbours)
    # The blurs add up to more than 1; this factor of the reference implementation brings the sum back near 1.
    weights = torch.div(weights.T, 1 + 2.0**-dims, out=weights.new_empty(pixels, dims + 1))
    return Lattice(splat, blurs, EqualRows(point_of_corner.T.contiguous(), weights))


def with_axes(lattice: Lattice, axes: int) -> Lattice:
    """The same filter in more steps, of which the last change nothing."""
    columns, weights = lattice.blurs.columns, lattice.blurs.weights
    rests = axes - len(columns)
    still = torch.zeros_like(weights[:1])
    still[..., 0] = 1
    columns = torch.cat([columns, columns[:1, :, :1].expand(rests, -1, columns.shape[2])])
    return replace(lattice, blurs=EqualRows(columns, torch.cat([weights, still.expand(rests, -1, -1)])))


def repeat(lattice: Lattice, pictures: int) -> Lattice:
    """The lattice that filters each of several pictures as this one filters a single picture."""
    if pictures == 1:
        return lattice
    blurs, read = lattice.blurs, lattice.slice
    points, pixels = len(lattice.splat.starts), len(read.columns)
    return Lattice(
        lattice.splat.repeated(pictures, pixels),
        EqualRows(shifted(blurs.columns, pictures, points, dim=1), blurs.weights.repeat(1, pictures, 1)),
        EqualRows(shifted(read.columns, pictures, points), read.weights.repeat(pictures, 1)),
    )


def add(left: Lattice, right: Lattice) -> Lattice:
    """The lattice that gives the sum of what two filters give; both have equally many axes."""
    points = len(left.splat.starts)

    def joined(one: EqualRows, other: EqualRows) -> EqualRows:
        # Blurs side by side have more rows, and slices more entries a row: dimension 1 is the one that grows.
        columns = torch.cat([one.columns, other.columns + points], 1)
        return EqualRows(columns, torch.cat([one.weights, other.weights], 1))

    return Lattice(left.splat.above(right.splat), joined(left.blurs, right.blurs), joined(left.slice, right.slice))


def _corner_codes(origin: Tensor, place: Tensor, pictures: int) -> tuple[Tensor, Tensor]:
    """Give every lattice point one number, so that points compare and sort as integers.

    A point's number is the sum of coordinate * stride. It is linear, so that a step along an axis of the lattice adds
    the same amount everywhere. The coordinates of a point all leave the same remainder modulo d + 1. The strides leave
    room for the quotients only; their own sum is 1 modulo d + 1, so the number tells the remainder as well. Each
    picture has a range of numbers to itself.

    Args:
        origin: the corner of each pixel's simplex whose remainder is 0, in units of d + 1, [d + 1, pixels].
        place: the order of the coordinates in the simplex, [d + 1, pixels].
        pictures: how many pictures the pixels belong to.

    Returns:
        The numbers of the corners, integers [d + 1, pixels]; and what a number gains by no step, by one forward and by
        one back along each axis, [d + 1, 3].
    """
    size = len(origin)
    free = origin[:-1]  # the last coordinate follows from the others, as they sum to 0
    low, high = free.amin(1), free.amax(1)
    # Corners, and the neighbours that are looked up, reach two steps below and one above the origins.
    widths = [int(extent) + 4 for extent in (high - low).tolist()]
    widths[-1] += -widths[-1] % size
    span = prod(widths) * size  # of the numbers of one picture
    if span * pictures >= 2**62:
        raise ValueError(f"the features span {prod(widths):.0e} lattice cells, allowed are 1e17; widen the filter")
    strides = [size * prod(widths[axis + 1 :]) for axis in range(size - 1)] + [0]
    # A step back along an axis: that coordinate loses d, and all others gain 1.
    back = [sum(strides) // size - stride for stride in strides]

    # Sorting 32-bit numbers takes half the time, and they nearly always suffice.
    integer = torch.int32 if span * pictures < 2**30 else torch.int64
    gains = [[stride, 0, -step, step] for stride, step in zip(strides, back, strict=True)]
    gain = to_device(gains, integer, origin.device)
    first = free.sub(low[:, None]).to(integer).mul_(gain[:-1, :1]).sum(0, dtype=integer)
    lowest = 2 * sum(strides)
    ranges = torch.arange(lowest, lowest + span * pictures, span, dtype=integer, device=origin.device)
    first.view(pictures, -1).add_(ranges[:, None])
    # From one corner to the next is a step back along an axis: the last in order first.
    losing = torch.empty_like(place, dtype=integer).scatter_(0, place, gain[:, 3:].expand_as(place))
    return torch.cat([first[None], losing[:-1]]).cumsum(0, dtype=integer), gain[:, 1:]


def _blurs(points: Tensor, neighbours: Tensor) -> EqualRows:
    """For each axis the matrix that adds to a point half of its two neighbours there, as far as they exist.

    Args:
        points: the numbers of the lattice points, ascending.
        neighbours: what a point's number gains by no step, by one forward and by one back along each axis, [axes, 3].
    """
    sought = points[:, None] + neighbours[:, None]
    columns = torch.searchsorted(points, sought, out_int32=True).clamp_(max=len(points) - 1)
    exists = points[columns] == sought
    # A missing neighbour has no weight; that it points to the row itself costs no memory traffic.
    columns = torch.where(exists, columns, columns[..., :1])
    return EqualRows(columns, exists * to_device([1, 0.5, 0.5], torch.float32, points.device))
