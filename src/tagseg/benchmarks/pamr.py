"""PAMR beside the published implementation, which holds all neighbors of all masks in memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.benchmarks.timing import Measurements, Table, Variant, compare, growth
from tagseg.refine.pamr import refine_masks, refine_plain

_DILATIONS, _ITERATIONS = (1, 2, 4, 8, 12, 24), 10
_SETTINGS: dict[str, Any] = {"dilations": _DILATIONS, "iterations": _ITERATIONS, "kernel": "reference"}
_CLASSES = 21  # VOC's with the background


def bench_pamr(device: torch.device) -> Measurements:
    """Measure PAMR on a training batch, with all masks and with those of the present classes only."""
    sides = (81, 112) if device.type == "cuda" else (81,)  # a quarter of a crop of 321 and of 448

    def job(*, batch: int = 2, classes: int = _CLASSES, side: int = 81, **settings: int) -> Callable[[], object]:
        return partial(refine_masks, *_batch(batch, classes, side, device), **{**_SETTINGS, **settings})

    # Launch overhead dominates small jobs on a GPU, so its sizes are larger.
    factor = 16 if device.type == "cuda" else 1
    pixels = [factor * side**2 for side in (41, 81, 161, 321)]
    masks = [factor * count for count in (8, 16, 32, 64)]
    images = [factor * count for count in (2, 4, 8, 16)]
    fit = partial(growth, device=device)
    return Measurements(
        tuple(_compare(side, device) for side in sides),
        (
            fit("PAMR, 2 x 21 masks", "pixels", pixels, lambda count: job(side=round(count**0.5))),
            fit("PAMR, 2 images of 81x81", "masks", masks, lambda count: job(classes=count)),
            fit("PAMR, 2 x 21 masks of 81x81", "iterations", [5, 10, 20, 40], lambda count: job(iterations=count)),
            fit("PAMR, 21 masks of 81x81", "images", images, lambda count: job(batch=count)),
        ),
    )


@torch.no_grad()
def published_pamr(image: Tensor, masks: Tensor) -> Tensor:
    """Refine masks by PAMR as the published implementation does, with all neighbors of all masks in memory.

    Args:
        image: Image, [B, 3, H, W].
        masks: Masks of the same size, [B, C, H, W].
    """
    neighbor_kernels, all_kernels = _kernels(image, with_center=False), _kernels(image, with_center=True)
    difference = (_gather(image, neighbor_kernels) - image[:, :, None]).abs()
    deviation = _gather(image, all_kernels).std(2, keepdim=True)
    affinities = (-difference / (1e-8 + 0.1 * deviation)).mean(1, keepdim=True).softmax(2)
    for _ in range(_ITERATIONS):
        masks = (_gather(masks, neighbor_kernels) * affinities).sum(2)
    return masks


def _kernels(like: Tensor, *, with_center: bool) -> Tensor:
    """Build 3x3 kernels that each copy one position, [8 or 9, 1, 3, 3]."""
    kernels = torch.eye(9, dtype=like.dtype, device=like.device).view(9, 1, 3, 3)
    return kernels if with_center else kernels[[0, 1, 2, 3, 5, 6, 7, 8]]


def _gather(maps: Tensor, kernels: Tensor) -> Tensor:
    """Gather every neighbor of every map, [B, C, neighbors, H, W]."""
    batch, channels, height, width = maps.shape
    planes = maps.reshape(batch * channels, 1, height, width)
    copies = [
        F.conv2d(F.pad(planes, (d, d, d, d), mode="replicate"), kernels.to(maps.dtype), dilation=d) for d in _DILATIONS
    ]
    return torch.cat(copies, 1).view(batch, channels, -1, height, width)


def _compare(side: int, device: torch.device) -> Table:
    image, masks = _batch(16, _CLASSES, side, device)
    present = torch.zeros(16, _CLASSES)
    present[:, 0] = present[:, 5] = present[::2, 9] = 1
    present = present.to(device)
    return compare(
        f"PAMR, 16x21x{side}x{side}, 10 iterations",
        [
            Variant("published form: all neighbors in memory", partial(published_pamr, image, masks)),
            Variant("plain torch, one neighbor at a time", partial(refine_plain, image, masks, None, **_SETTINGS)),
            Variant("tagseg", partial(refine_masks, image, masks, **_SETTINGS)),
            Variant("tagseg, present classes only", partial(refine_masks, image, masks, present=present, **_SETTINGS)),
        ],
        device=device,
        rounds=3,
        note="Present are the background and 1 or 2 classes per image: 2.5 masks of 21, as in VOC.",
    )


def _batch(batch: int, classes: int, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(batch, 3, side, side, generator=generator)
    masks = torch.randn(batch, classes, side, side, generator=generator).softmax(1)
    return image.to(device), masks.to(device)
