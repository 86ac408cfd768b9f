"""Where a point of a feature space lies in the permutohedral lattice: its simplex, and its place in that.

Everything is rounded to float32 where the reference implementation rounds, because features often fall exactly between
two simplices.
"""

from math import sqrt

import torch
from torch import Tensor


def elevate(features: Tensor) -> Tensor:
    """Map features [d, pixels] onto the plane of R^(d+1) whose coordinates sum to 0, [d + 1, pixels].

    The scale makes splat, blur and slice together a Gaussian of standard deviation 1.
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


def enclosing_simplex(elevated: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
    for first in range(size - 1):
        behind = offset[first] < offset[first + 1 :]
        rank[first] += behind.sum(0, dtype=torch.int8)
        rank[first + 1 :] += ~behind
    # Rounding can leave the plane; the coordinates that moved most go back by one step, and the order turns with them.
    rank += origin.sum(0).to(torch.int8)
    step = (rank < 0).to(torch.int8) - (rank >= size).to(torch.int8)
    rank += step * size
    origin += step
    offset = (elevated - origin * size) * (1 / size)
    return origin.long(), rank.long(), offset


def barycentric(rank: Tensor, offset: Tensor) -> Tensor:
    """The weight of each of the d + 1 corners of a pixel's simplex, from offsets [d + 1, pixels]; they sum to 1."""
    ascending = torch.empty_like(offset).scatter_(0, len(rank) - 1 - rank, offset)
    weights = torch.empty_like(offset)
    weights[1:] = ascending[1:] - ascending[:-1]
    weights[0] = ascending[0] + (1 - ascending[-1])
    return weights
