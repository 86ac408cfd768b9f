"""PAMR on a CPU without gradients: an iteration is the product of a sparse matrix with the masks.

The affinities of an image are a sparse matrix with one row per pixel and one entry per neighbor. Its columns are the
same for all images of a size. They are clamped at the border, which replicates the border's pixels.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.refine._sparse import EllMatrix
from tagseg.refine.pamr import OFFSETS, color_scale

# Pixels whose affinities are computed at once: the intermediate results stay in the caches.
_BLOCK = 8192
# Channels of the masks are padded to a multiple of the vector width.
_VECTOR = 8


def refine(
    image: Tensor, masks: Tensor, present: Tensor | None, *, dilations: Sequence[int], iterations: int, kernel: str
) -> Tensor:
    """Refine masks of the image's size in single precision; see `pamr`."""
    height, width = masks.shape[-2:]
    columns = _neighbor_columns(height, width, dilations)
    refined = masks.clone(memory_format=torch.contiguous_format)
    for index, sample in enumerate(image.float()):
        class_indices = slice(None) if present is None else present[index].nonzero().flatten()
        planes = masks[index, class_indices].float().flatten(1)
        if len(planes) == 0:
            continue
        weighted_mean = EllMatrix(columns, _affinities(sample.flatten(1), columns, kernel))
        rows = F.pad(planes.T, (0, -len(planes) % _VECTOR))
        for _ in range(iterations):
            rows = weighted_mean @ rows  # Eq. 7
        refined[index, class_indices] = rows[:, : len(planes)].T.reshape(-1, height, width).to(masks.dtype)
    return refined


def _neighbor_columns(height: int, width: int, dilations: Sequence[int]) -> Tensor:
    """Return the index of every neighbor of every pixel, int32 [H * W, neighbors]."""
    down = torch.tensor([dy * dilation for dilation in dilations for dy, _ in OFFSETS], dtype=torch.int32)
    right = torch.tensor([dx * dilation for dilation in dilations for _, dx in OFFSETS], dtype=torch.int32)
    rows = (torch.arange(height, dtype=torch.int32)[:, None] + down).clamp_(0, height - 1) * width
    columns = (torch.arange(width, dtype=torch.int32)[:, None] + right).clamp_(0, width - 1)
    return (rows[:, None] + columns).flatten(0, 1)


def _affinities(image: Tensor, columns: Tensor, kernel: str) -> Tensor:
    """Compute each pixel's affinities to its neighbors, [pixels, neighbors], for one image [channels, pixels]."""
    weights = image.new_empty(columns.shape)
    blocks = zip(image.split(_BLOCK, 1), columns.split(_BLOCK), weights.split(_BLOCK), strict=True)
    values = 9 * columns.shape[1] // 8  # the center counts once per dilation
    for centers, neighbors, target in blocks:
        affinity = torch.zeros_like(target)
        for channel, center in zip(image, centers[:, :, None], strict=True):
            difference = channel.index_select(0, neighbors.flatten()).view_as(target).sub_(center)
            total, squares = difference.sum(1, keepdim=True), difference.square().sum(1, keepdim=True)
            scale = color_scale(total, squares, values, kernel)
            affinity.sub_(difference.abs_().div_(scale))  # Eq. 8
        torch.softmax(affinity.div_(len(image)), 1, out=target)  # alpha of Eq. 7
    return weights
