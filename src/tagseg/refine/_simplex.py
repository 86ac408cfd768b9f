"""Position of feature vectors in the permutohedral lattice: the enclosing simplex, its vertices and their weights.

Values are rounded to float32 exactly where the authors' implementation rounds, because features often fall exactly
between two simplices.

Lattice points are identified by integer keys. A point's key is the dot product of its coordinates with fixed strides,
so a step along a lattice axis changes every key by the same amount. The d + 1 coordinates of a point all have the same
remainder modulo d + 1. The strides enumerate the quotients only, and they sum to 1 modulo d + 1, so the key determines
the remainder as well. Each image has its own range of keys.
"""

from collections.abc import Sequence
from functools import cache
from math import ceil, floor, prod, sqrt

import torch
from torch import Tensor

from tagseg._device import to_device

Range = tuple[float, float]


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
