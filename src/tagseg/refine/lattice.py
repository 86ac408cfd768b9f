"""Gaussian filtering in many dimensions at a cost linear in the number of pixels: the permutohedral lattice.

Adams, Baek and Davis, "Fast High-Dimensional Filtering Using the Permutohedral Lattice", 2010. A pixel with d features
lies in a simplex with d + 1 vertices. Filtering adds the pixels' values to the vertices (splat), blurs along the d + 1
axes of the lattice and interpolates the pixels' values (slice). Every step is linear and depends only on the features,
so each is a sparse matrix that is built once and applied to any number of channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tagseg._device import to_device, triton_available
from tagseg.refine._parallel import Workers
from tagseg.refine._simplex import Range, key_table, simplex_vertices
from tagseg.refine._sparse import CsrMatrix, EllMatrix, repeat_with_offset, segment_rows


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
