"""PAMR on a CPU, without gradients: an iteration is the product of a sparse matrix with the masks.

An image's affinities are a sparse matrix with one row a pixel and one entry a neighbour. Its columns are the same for
all images of a size, and clamped at the border, which repeats the border's pixels.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.refine._pamr_plain import OFFSETS, colour_scale
from tagseg.refine._sparse import EllMatrix

# Affinities are made for so many pixels at once: their intermediate results stay in the caches.
_PIECE = 8192
# Rows of whole vector registers are summed without a remainder.
_VECTOR = 8


def refine(
    image: Tensor, masks: Tensor, present: Tensor | None, *, dilations: Sequence[int], iterations: int, kernel: str
) -> Tensor:
    """Refine masks of the image's size, in single precision; see `pamr`."""
    height, width = masks.shape[-2:]
    columns = _neighbour_columns(height, width, dilations)
    refined = masks.clone(memory_format=torch.contiguous_format)
    for index, sample in enumerate(image.float()):
        chosen = slice(None) if present is None else present[index].nonzero().flatten()
        planes = masks[index, chosen].float().flatten(1)
        if len(planes) == 0:
            continue
        mean_of_neighbours = EllMatrix(columns, _affinities(sample.flatten(1), columns, kernel))
        rows = F.pad(planes.T, (0, -len(planes) % _VECTOR))
        for _ in range(iterations):
            rows = mean_of_neighbours @ rows
        refined[index, chosen] = rows[:, : len(planes)].T.reshape(-1, height, width).to(masks.dtype)
    return refined


def _neighbour_columns(height: int, width: int, dilations: Sequence[int]) -> Tensor:
    """The place of every neighbour of every pixel, int32 [H * W, neighbours]."""
    down = torch.tensor([dy * dilation for dilation in dilations for dy, _ in OFFSETS], dtype=torch.int32)
    right = torch.tensor([dx * dilation for dilation in dilations for _, dx in OFFSETS], dtype=torch.int32)
    rows = (torch.arange(height, dtype=torch.int32)[:, None] + down).clamp_(0, height - 1) * width
    columns = (torch.arange(width, dtype=torch.int32)[:, None] + right).clamp_(0, width - 1)
    return (rows[:, None] + columns).flatten(0, 1)


def _affinities(image: Tensor, columns: Tensor, kernel: str) -> Tensor:
    """How much of each neighbour a pixel takes, [pixels, neighbours], for one image [channels, pixels]."""
    weights = image.new_empty(columns.shape)
    pieces = zip(image.split(_PIECE, 1), columns.split(_PIECE), weights.split(_PIECE), strict=True)
    values = 9 * columns.shape[1] // 8  # the centre counts once for each dilation
    for centres, neighbours, target in pieces:
        closeness = torch.zeros_like(target)
        for channel, centre in zip(image, centres[:, :, None], strict=True):
            difference = channel.index_select(0, neighbours.flatten()).view_as(target).sub_(centre)
            total, squares = difference.sum(1, keepdim=True), difference.square().sum(1, keepdim=True)
            scale = colour_scale(total, squares, values, kernel)
            closeness.sub_(difference.abs_().div_(scale))
        torch.softmax(closeness.div_(len(image)), 1, out=target)
    return weights
