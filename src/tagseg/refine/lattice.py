"""Gaussian filtering in many dimensions at a cost linear in the number of pixels: the permutohedral lattice.

Adams, Baek and Davis, "Fast High-Dimensional Filtering Using the Permutohedral Lattice", 2010. A pixel with d features
lies in a simplex with d + 1 corners. Filtering spreads the pixels' values onto the corners (splat), smooths along the
d + 1 axes of the lattice (blur) and reads the pixels back (slice). Every step is linear and depends on the features
alone, so each is a sparse matrix that is built once and then applied to any number of channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tagseg._device import to_device
from tagseg._kernels import triton_runs
from tagseg.refine._numbering import Range, numbering_table
from tagseg.refine._simplex import barycentric, elevate, enclosing_simplex
from tagseg.refine._sparse import EqualRows, SparseRows, cut_into_pieces, shifted


@dataclass(frozen=True)
class Lattice:
    """The steps of one filter as sparse matrices.

    Attributes:
        splat: from the pixels to the lattice points.
        blurs: from the points to the points, one for each axis or, where Triton's kernels compute the products, for
            every two, to be applied in this order: [steps, points, entries].
        slice: from the points back to the pixels.
    """

    splat: SparseRows
    blurs: EqualRows
    slice: EqualRows

    @cached_property
    def steps(self) -> list[EqualRows]:
        """The blurs one by one."""
        return [EqualRows(*blur) for blur in zip(self.blurs.columns, self.blurs.weights, strict=True)]

    def filter(self, values: Tensor) -> Tensor:
        """Replace each pixel's values [pixels, channels] by a sum over all pixels, weighted by nearness in features."""
        points = self.splat @ values
        for blur in self.steps:
            points = blur @ points
        return self.slice @ points


def build_lattice(features: Tensor, ranges: Sequence[Range], images: int, *, axes: int) -> Lattice:
    """The lattice that filters with a Gaussian of standard deviation 1 in each of the features.

    Args:
        features: float32 [d, pixels], one image's pixels after another's.
        ranges: the least and the largest value that each feature can have. That they are known beforehand saves a GPU
            from waiting until the CPU has read them.
        images: how many images there are, all of one size; each is filtered by itself.
        axes: blur along so many, at least d + 1 and an even number, of which the last change nothing: lattices can be
            added that have equally many.
    """
    dims, pixels = features.shape
    table = numbering_table(ranges, images, features.device)
    codes, weights = _corners(features, table, images)

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
    blurs = _blurs(sorted_codes[firsts], table[:-1, 2:])
    if axes > dims + 1:
        blurs = _with_axes(blurs, axes)
    if triton_runs(starts):
        blurs = _in_pairs(blurs)
    # The blurs add up to more than 1; this factor of the reference implementation brings the sum back near 1.
    weights = torch.div(weights.T, 1 + 2.0**-dims, out=weights.new_empty(pixels, dims + 1))
    return Lattice(splat, blurs, EqualRows(point_of_corner.T.contiguous(), weights))


def repeat(lattice: Lattice, images: int) -> Lattice:
    """The lattice that filters each of several images as this one filters a single image."""
    if images == 1:
        return lattice
    blurs, read = lattice.blurs, lattice.slice
    points, pixels = len(lattice.splat.starts), len(read.columns)
    return Lattice(
        lattice.splat.repeated(images, pixels),
        EqualRows(shifted(blurs.columns, images, points, dim=1), blurs.weights.repeat(1, images, 1)),
        EqualRows(shifted(read.columns, images, points), read.weights.repeat(images, 1)),
    )


def add(left: Lattice, right: Lattice) -> Lattice:
    """The lattice that gives the sum of what two filters give; both blur in equally many steps."""
    points = len(left.splat.starts)

    def joined(one: EqualRows, other: EqualRows) -> EqualRows:
        # Blurs side by side have more rows, and slices more entries a row: dimension 1 is the one that grows.
        columns = torch.cat([one.columns, other.columns + points], 1)
        return EqualRows(columns, torch.cat([one.weights, other.weights], 1))

    return Lattice(left.splat.above(right.splat), joined(left.blurs, right.blurs), joined(left.slice, right.slice))


def _corners(features: Tensor, table: Tensor, images: int) -> tuple[Tensor, Tensor]:
    """The corners of each pixel's simplex.

    Args:
        features: float32 [d, pixels].
        table: how points are numbered, see `numbering_table`.
        images: how many images the pixels belong to.

    Returns:
        Their numbers, and the pixel's weight in each of them, both [d + 1, pixels].
    """
    if triton_runs(features):
        from tagseg.refine._corners_triton import corners

        return corners(features, table, images)
    origin, place, offset = enclosing_simplex(elevate(features))
    stride, low, *_, back = table[:-1].split(1, 1)
    first = origin.to(table.dtype).sub_(low).mul_(stride).sum(0, dtype=table.dtype)
    number = torch.arange(images, device=features.device, dtype=table.dtype)
    first.view(images, -1).add_(torch.addcmul(table[-1, 0], number, table[-1, 1])[:, None])
    # From one corner to the next is a step back along an axis: the last in order first.
    losing = torch.empty_like(place, dtype=table.dtype).scatter_(0, place, back.expand_as(place))
    return torch.cat([first[None], losing[:-1]]).cumsum(0, dtype=table.dtype), barycentric(place, offset)


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


def _with_axes(blurs: EqualRows, axes: int) -> EqualRows:
    """The same along more axes, of which the last change nothing."""
    columns, weights = blurs.columns, blurs.weights
    rests = axes - len(columns)
    still = torch.zeros_like(weights[:1])
    still[..., 0] = 1  # a point's first entry is the point itself
    columns = torch.cat([columns, columns[:1, :, :1].expand(rests, -1, columns.shape[2])])
    return EqualRows(columns, torch.cat([weights, still.expand(rests, -1, -1)]))


def _in_pairs(blurs: EqualRows) -> EqualRows:
    """Two axes in one step: half as many products, which pays where to start one costs more than its entries."""
    then, weights = blurs.columns[1::2], blurs.weights[1::2]
    first = torch.arange(0, len(blurs.columns), 2, device=then.device)[:, None, None], then
    return EqualRows(blurs.columns[first].flatten(2), blurs.weights[first].mul_(weights[..., None]).flatten(2))
