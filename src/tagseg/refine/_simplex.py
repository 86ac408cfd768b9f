"""Where a point of a feature space lies in the permutohedral lattice: its simplex, and its place in that.

Everything is rounded to float32 where the reference implementation rounds, because features often fall exactly between
two simplices. All coordinates are computed at once where that is possible: on a GPU each operation costs its start.
"""

from functools import cache
from math import sqrt

import torch
from torch import Tensor

from tagseg._device import to_device


@cache
def elevation_factors(dims: int) -> tuple[float, ...]:
    """What each of so many features is multiplied by, so that splat, blur and slice give a standard deviation of 1."""
    deviation = torch.tensor(sqrt(2 / 3) * (dims + 1), dtype=torch.float32).item()
    return tuple(deviation / sqrt(axis * (axis + 1)) for axis in range(1, dims + 1))


def elevate(features: Tensor) -> Tensor:
    """Map features [d, pixels] onto the plane of R^(d+1) whose coordinates sum to 0, [d + 1, pixels]."""
    dims, pixels = features.shape
    axes = range(1, dims + 1)
    factors = [elevation_factors(dims), axes]
    factor, number = to_device(factors, torch.float32, features.device)[:, :, None].unbind()
    scaled = features * factor
    elevated = features.new_zeros(dims + 1, pixels)
    # One after another, because cumsum would round at the end only.
    sums, terms = elevated.unbind(), scaled.unbind()
    for axis in reversed(axes):
        torch.add(sums[axis], terms[axis - 1], out=sums[axis - 1])
    elevated[1:].sub_(scaled.mul_(number))
    return elevated


def enclosing_simplex(elevated: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the simplex around each elevated feature [d + 1, pixels].

    Returns:
        The corner of the simplex whose coordinates are all multiples of d + 1; the place of each coordinate when the
        offsets from that corner are sorted from small to large, int64; these offsets. The first and the last are in
        units of d + 1; all are [d + 1, pixels].
    """
    size = len(elevated)
    origin = (elevated * (1 / size)).round_()
    offset = elevated.sub(origin, alpha=size)
    # Each pair is compared once: of equal offsets the first counts as the larger.
    last = torch.arange(size - 1, -1, -1, dtype=torch.int8, device=elevated.device)[:, None]
    below = (offset[:, None] < offset).bitwise_and_(last[:, None] > last).view(torch.int8)
    place = below.sum(0, dtype=torch.int8).sub_(below.sum(1, dtype=torch.int8)).add_(last)
    # Rounding can leave the plane; the coordinates that moved most go back by one step, and the order turns with them.
    place -= origin.sum(0).to(torch.int8)
    step = place.div(size, rounding_mode="floor")
    place.sub_(step, alpha=size)
    origin += step
    offset = elevated.sub(origin, alpha=size).mul_(1 / size)
    return origin, place.long(), offset


def barycentric(place: Tensor, offset: Tensor) -> Tensor:
    """The weight of each of the d + 1 corners of a pixel's simplex, from offsets [d + 1, pixels]; they sum to 1."""
    ascending = torch.empty_like(offset).scatter_(0, place, offset)
    return ascending.diff(dim=0, prepend=ascending[-1:] - 1)
