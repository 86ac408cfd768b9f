"""PAMR as the published implementation computes it: all neighbours of all masks in memory at once. A baseline."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

_DILATIONS = (1, 2, 4, 8, 12, 24)


@torch.no_grad()
def materialised_pamr(
    image: Tensor, masks: Tensor, *, dilations: Sequence[int] = _DILATIONS, iterations: int = 10
) -> Tensor:
    """Refine masks [B, C, H, W] of an image of the same size, [B, 3, H, W]."""
    around, centred = _kernels(image, with_centre=False), _kernels(image, with_centre=True)
    difference = (_gather(image, around, dilations) - image[:, :, None]).abs()
    deviation = _gather(image, centred, dilations).std(2, keepdim=True)
    affinities = (-difference / (1e-8 + 0.1 * deviation)).mean(1, keepdim=True).softmax(2)
    for _ in range(iterations):
        masks = (_gather(masks, around, dilations) * affinities).sum(2)
    return masks


def _kernels(like: Tensor, *, with_centre: bool) -> Tensor:
    """One 3x3 kernel for each position, which copies it: [8 or 9, 1, 3, 3]."""
    kernels = torch.eye(9, dtype=like.dtype, device=like.device).view(9, 1, 3, 3)
    return kernels if with_centre else kernels[[0, 1, 2, 3, 5, 6, 7, 8]]


def _gather(maps: Tensor, kernels: Tensor, dilations: Sequence[int]) -> Tensor:
    """Every neighbour of every map, [B, C, neighbours, H, W]."""
    batch, channels, height, width = maps.shape
    planes = maps.reshape(batch * channels, 1, height, width)
    copies = [
        F.conv2d(F.pad(planes, (d, d, d, d), mode="replicate"), kernels.to(maps.dtype), dilation=d) for d in dilations
    ]
    return torch.cat(copies, 1).view(batch, channels, -1, height, width)
