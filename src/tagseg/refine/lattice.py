"""Gaussian filtering in many dimensions at a cost linear in the number of pixels: the permutohedral lattice.

Adams, Baek and Davis, "Fast High-Dimensional Filtering Using the Permutohedral Lattice", 2010. A pixel with d features
lies in a simplex with d + 1 vertices. Filtering adds the pixels' values to the vertices (splat), blurs along the d + 1
axes of the lattice and interpolates the pixels' values (slice). Every step is linear and depends only on the features,
so each is a sparse matrix that is built once and applied to any number of channels.

Values are rounded to float32 exactly where the authors' implementation rounds, because features often fall exactly
between two simplices.

Lattice points are identified by integer keys. A point's key is the dot product of its coordinates with fixed strides,
so a step along a lattice axis changes every key by the same amount. The d + 1 coordinates of a point all have the same
remainder modulo d + 1. The strides enumerate the quotients only, and they sum to 1 modulo d + 1, so the key determines
the remainder as well. Each image has its own range of keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil, floor, prod, sqrt

import torch
from torch import Tensor

from tagseg._device import to_device, triton_available
from tagseg.refine._parallel import Workers
from tagseg.refine._sparse import CsrMatrix, EllMatrix, repeat_with_offset, segment_rows

Range = tuple[float, float]


@dataclass(frozen=True)
class Lattice:
    """Steps of a filter as sparse matrices.

    Attributes:
        splat: From pixels to lattice points.
        blurs: From lattice points to lattice points, [steps, points, entries]: one step for each axis or, for the
            Triton kernels, for every two axes. They are applied in order.
        slice: From lattice points to pixels.
    """

    splat: CsrMatrix
    blurs: EllMatrix
    slice: EllMatrix

    @cached_property
    def blur_steps(self) -> list[EllMatrix]:
        """Matrix of each blur step."""
        return [EllMatrix(*blur) for blur in zip(self.blurs.columns, self.blurs.weights, strict=True)]

    def filter(self, values: Tensor) -> Tensor:
        """Filter values [pixels, channels]: a sum over all pixels, weighted by the distance in feature space."""
        points = self.splat @ values
        for blur in self.blur_steps:
            points = blur @ points
        return self.slice @ points


def build_lattice(
    features: Tensor, ranges: Sequence[Range], images: int, *, axes: int, workers: Workers | None = None
) -> Lattice:
    """Build the lattice of a Gaussian filter with standard deviation 1 in each feature.

    Args:
        features: Features of float32 [d, pixels], image after image.
        ranges: Smallest and largest possible value of each feature. Passing them avoids a synchronization with a GPU.
        images: Number of images, all of the same size; each is filtered separately.
        axes: Number of axes to blur along, an even number and at least d + 1; those beyond d + 1 change nothing.
            Lattices with the same number of axes can be added.
        workers: Threads that share the work on a CPU.
    """
    dims, pixels = features.shape
    table = key_table(ranges, images, features.device)
    keys, weights = _vertices(features, table, images, workers or Workers())

    # One sort enumerates the lattice points and lists the pixels around each of them.
    sorted_keys, order = keys.flatten().sort(stable=True)
    is_first = torch.ones_like(sorted_keys, dtype=torch.bool)
    torch.ne(sorted_keys[1:], sorted_keys[:-1], out=is_first[1:])
    firsts = is_first.nonzero().squeeze(1)
    point = is_first.cumsum(0, dtype=torch.int32).sub_(1)
    point_of_vertex = torch.empty_like(point).scatter_(0, order, point).view(dims + 1, pixels)

    starts = firsts.int()
    segments = segment_rows(starts, len(order)) if triton_available(starts) else None
    splat = CsrMatrix(order.remainder(pixels).int(), starts, weights.flatten().gather(0, order), segments)
    blurs = _blur_matrices(sorted_keys[firsts], table[:-1, 2:])
    if axes > dims + 1:
        blurs = _append_identities(blurs, axes)
    if triton_available(starts):
        blurs = _merge_pairs(blurs)
    # The blur weights sum to more than 1; this factor of the authors' implementation brings the sum back near 1.
    weights = torch.div(weights.T, 1 + 2.0**-dims, out=weights.new_empty(pixels, dims + 1))
    return Lattice(splat, blurs, EllMatrix(point_of_vertex.T.contiguous(), weights))


def repeat(lattice: Lattice, images: int) -> Lattice:
    """Return the lattice that filters each of several images as this one filters a single image."""
    if images == 1:
        return lattice
    blurs, slice_matrix = lattice.blurs, lattice.slice
    points, pixels = len(lattice.splat.starts), len(slice_matrix.columns)
    return Lattice(
        lattice.splat.block_diagonal(images, pixels),
        EllMatrix(repeat_with_offset(blurs.columns, images, points, dim=1), blurs.weights.repeat(1, images, 1)),
        EllMatrix(repeat_with_offset(slice_matrix.columns, images, points), slice_matrix.weights.repeat(images, 1)),
    )


def add(left: Lattice, right: Lattice) -> Lattice:
    """Return the lattice that computes the sum of two filters with the same number of blur steps."""
    points = len(left.splat.starts)

    def concatenate(one: EllMatrix, other: EllMatrix) -> EllMatrix:
        # Dimension 1 is the rows of the blurs and the entries of the slices: both grow.
        columns = torch.cat([one.columns, other.columns + points], 1)
        return EllMatrix(columns, torch.cat([one.weights, other.weights], 1))

    splat = left.splat.stack(right.splat)
    return Lattice(splat, concatenate(left.blurs, right.blurs), concatenate(left.slice, right.slice))


def _vertices(features: Tensor, table: Tensor, images: int, workers: Workers) -> tuple[Tensor, Tensor]:
    """Find keys and weights of the vertices of each pixel's simplex, both [d + 1, pixels]."""
    if triton_available(features):
        from tagseg.refine._crf_triton import simplex_vertices as vertices_by_kernel

        return vertices_by_kernel(features, table, images)
    dims, pixels = features.shape
    keys, weights = table.new_empty(dims + 1, pixels), features.new_empty(dims + 1, pixels)
    image_of_pixel = torch.arange(images, dtype=table.dtype, device=table.device).repeat_interleave(pixels // images)

    def compute(block: slice) -> None:
        keys[:, block], weights[:, block] = simplex_vertices(features[:, block], table, image_of_pixel[block])

    workers.for_each(compute, workers.blocks(pixels) if features.device.type == "cpu" else [slice(pixels)])
    return keys, weights


def _blur_matrices(points: Tensor, steps: Tensor) -> EllMatrix:
    """Build for each axis the matrix that adds half of each point's two neighbors along the axis, if they exist.

    Args:
        points: Keys of the lattice points, ascending.
        steps: Change of a key by no step, one step forward and one step back along each axis, [axes, 3].
    """
    neighbors = points[:, None] + steps[:, None]
    columns = torch.searchsorted(points, neighbors, out_int32=True).clamp_(max=len(points) - 1)
    exists = points[columns] == neighbors
    # A missing neighbor has weight 0. Its column is the point itself, which needs no further memory access.
    columns = torch.where(exists, columns, columns[..., :1])
    return EllMatrix(columns, exists * to_device([1, 0.5, 0.5], torch.float32, points.device))


def _append_identities(blurs: EllMatrix, axes: int) -> EllMatrix:
    """Append identity steps until there are `axes` steps."""
    columns, weights = blurs.columns, blurs.weights
    missing = axes - len(columns)
    identity = torch.zeros_like(weights[:1])
    identity[..., 0] = 1  # a point's first entry is the point itself
    columns = torch.cat([columns, columns[:1, :, :1].expand(missing, -1, columns.shape[2])])
    return EllMatrix(columns, torch.cat([weights, identity.expand(missing, -1, -1)]))


def _merge_pairs(blurs: EllMatrix) -> EllMatrix:
    """Merge every two steps into one: fewer kernel launches, which cost a GPU more than the additional entries."""
    columns, weights = blurs.columns[1::2], blurs.weights[1::2]
    first = torch.arange(0, len(blurs.columns), 2, device=columns.device)[:, None, None], columns
    return EllMatrix(blurs.columns[first].flatten(2), blurs.weights[first].mul_(weights[..., None]).flatten(2))


@cache
def elevation_factors(dims: int) -> tuple[float, ...]:
    """Return the factor of each feature for which splat, blur and slice have a standard deviation of 1."""
    deviation = torch.tensor(sqrt(2 / 3) * (dims + 1), dtype=torch.float32).item()
    return tuple(deviation / sqrt(axis * (axis + 1)) for axis in range(1, dims + 1))


def elevate(features: Tensor) -> Tensor:
    """Map features [d, pixels] onto the hyperplane of R^(d+1) whose coordinates sum to 0, [d + 1, pixels]."""
    dims, pixels = features.shape
    axes = range(1, dims + 1)
    factors = [elevation_factors(dims), axes]
    factor, number = to_device(factors, torch.float32, features.device)[:, :, None].unbind()
    scaled = features * factor
    elevated = features.new_zeros(dims + 1, pixels)
    # A loop, because cumsum would round only at the end.
    sums, terms = elevated.unbind(), scaled.unbind()
    for axis in reversed(axes):
        torch.add(sums[axis], terms[axis - 1], out=sums[axis - 1])
    elevated[1:].sub_(scaled.mul_(number))
    return elevated


def enclosing_simplex(elevated: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the simplex that contains each elevated feature vector.

    Args:
        elevated: Elevated features, [d + 1, pixels].

    Returns:
        The remainder-0 vertex of the simplex in units of d + 1; the rank of each coordinate when the offsets from that
        vertex are sorted in ascending order, int64; these offsets in units of d + 1. All are [d + 1, pixels].
    """
    size = len(elevated)
    origin = (elevated * (1 / size)).round_()
    offset = elevated.sub(origin, alpha=size)
    # Each pair is compared once; of two equal offsets the first counts as the larger.
    last = torch.arange(size - 1, -1, -1, dtype=torch.int8, device=elevated.device)[:, None]
    below = (offset[:, None] < offset).bitwise_and_(last[:, None] > last).view(torch.int8)
    rank = below.sum(0, dtype=torch.int8).sub_(below.sum(1, dtype=torch.int8)).add_(last)
    # Rounding can leave the hyperplane: the coordinates that were rounded most move back by one step.
    rank -= origin.sum(0).to(torch.int8)
    step = rank.div(size, rounding_mode="floor")
    rank.sub_(step, alpha=size)
    origin += step
    offset = elevated.sub(origin, alpha=size).mul_(1 / size)
    return origin, rank.long(), offset


def barycentric(rank: Tensor, offset: Tensor) -> Tensor:
    """Return the barycentric weights of the d + 1 vertices from ranks and offsets [d + 1, pixels]; they sum to 1."""
    ascending = torch.empty_like(offset).scatter_(0, rank, offset)
    return ascending.diff(dim=0, prepend=ascending[-1:] - 1)


def simplex_vertices(features: Tensor, table: Tensor, image: Tensor | int) -> tuple[Tensor, Tensor]:
    """Find the vertices of each pixel's simplex.

    Args:
        features: Features of float32 [d, pixels].
        table: Key table of `key_table`.
        image: Index of the image, or of each pixel's image [pixels].

    Returns:
        The keys of the vertices, and the pixel's weight in each, both [d + 1, pixels].
    """
    origin, rank, offset = enclosing_simplex(elevate(features))
    stride, low, *_, back = table[:-1].split(1, 1)
    first = origin.to(table.dtype).sub_(low).mul_(stride).sum(0, dtype=table.dtype)
    first.add_(table[-1, 0] + table[-1, 1] * image)
    # One vertex follows from the previous one by a step back along an axis, in descending order of rank.
    steps = torch.empty_like(rank, dtype=table.dtype).scatter_(0, rank, back.expand_as(rank))
    return torch.cat([first[None], steps[:-1]]).cumsum(0, dtype=table.dtype), barycentric(rank, offset)


def key_table(ranges: Sequence[Range], images: int, device: torch.device) -> Tensor:
    """Enumerate all lattice points that features within given ranges can reach.

    Args:
        ranges: Smallest and largest value of each feature, over all images.
        images: Number of images.
        device: Device of the table.

    Returns:
        Table of [d + 2, 5] in an integer type that holds all keys. A row for each axis has the stride, the smallest
        coordinate in units of d + 1, and the change of a key by no step, one step forward and one step back along the
        axis. The last row starts with the key of the point with the smallest coordinates and the number of keys per
        image.

    Raises:
        ValueError: If there are too many lattice points to enumerate.
    """
    size = len(ranges) + 1
    bounds = [_coordinate_range(ranges, axis) for axis in range(size - 1)]
    # Rounding moves an origin by up to one step. Vertices and their blur neighbors reach from two steps below to one
    # step above the origins.
    lows = [floor(low) - 1 for low, _ in bounds]
    widths = [ceil(high) + 1 - low + 4 for (_, high), low in zip(bounds, lows, strict=True)]
    widths[-1] += -widths[-1] % size
    span = prod(widths) * size
    if span * images >= 2**62:
        raise ValueError(
            f"the features can span {images * prod(widths):.0e} lattice cells, allowed are 1e17; widen the filter"
        )
    # The last coordinate follows from the others, as they sum to 0.
    strides = [size * prod(widths[axis + 1 :]) for axis in range(size - 1)] + [0]
    # A step back along an axis subtracts d from that coordinate and adds 1 to all others.
    back = [sum(strides) // size - stride for stride in strides]
    rows = [[stride, low, 0, -step, step] for stride, low, step in zip(strides, [*lows, 0], back, strict=True)]
    # Sorting 32-bit keys takes half the time, and they nearly always suffice.
    dtype = torch.int32 if span * images < 2**30 else torch.int64
    return to_device([*rows, [2 * sum(strides), span, 0, 0, 0]], dtype, device)


def _coordinate_range(ranges: Sequence[Range], axis: int) -> Range:
    """Return the smallest and largest coordinate of elevated features along an axis, in units of d + 1."""
    factors = elevation_factors(len(ranges))
    scaled = [(low * factor, high * factor) for (low, high), factor in zip(ranges, factors, strict=True)]
    axis_low, axis_high = scaled[axis - 1] if axis else (0.0, 0.0)
    low = sum(low for low, _ in scaled[axis:]) - axis * axis_high
    high = sum(high for _, high in scaled[axis:]) - axis * axis_low
    size = len(ranges) + 1
    return low / size, high / size
