"""PAMR as the published implementation computes it, with all neighbors of all masks in memory: the baseline."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

_DILATIONS = (1, 2, 4, 8, 12, 24)


@torch.no_grad()
def published_pamr(
    image: Tensor, masks: Tensor, *, dilations: Sequence[int] = _DILATIONS, iterations: int = 10
) -> Tensor:
    """Refine masks by PAMR in the published form.

    Args:
        image: Image, [B, 3, H, W].
        masks: Masks of the same size, [B, C, H, W].
        dilations: Distances of the neighbors in pixels.
        iterations: Number of iterations.
    """
    neighbor_kernels, all_kernels = _kernels(image, with_center=False), _kernels(image, with_center=True)
    difference = (_gather(image, neighbor_kernels, dilations) - image[:, :, None]).abs()
    deviation = _gather(image, all_kernels, dilations).std(2, keepdim=True)
    affinities = (-difference / (1e-8 + 0.1 * deviation)).mean(1, keepdim=True).softmax(2)
    for _ in range(iterations):
        masks = (_gather(masks, neighbor_kernels, dilations) * affinities).sum(2)
    return masks


def _kernels(like: Tensor, *, with_center: bool) -> Tensor:
    """Build 3x3 kernels that each copy one position, [8 or 9, 1, 3, 3]."""
    kernels = torch.eye(9, dtype=like.dtype, device=like.device).view(9, 1, 3, 3)
    return kernels if with_center else kernels[[0, 1, 2, 3, 5, 6, 7, 8]]


def _gather(maps: Tensor, kernels: Tensor, dilations: Sequence[int]) -> Tensor:
    """Gather every neighbor of every map, [B, C, neighbors, H, W]."""
    batch, channels, height, width = maps.shape
    planes = maps.reshape(batch * channels, 1, height, width)
    copies = [
        F.conv2d(F.pad(planes, (d, d, d, d), mode="replicate"), kernels.to(maps.dtype), dilation=d) for d in dilations
    ]
    return torch.cat(copies, 1).view(batch, channels, -1, height, width)
