"""PAMR beside the form of the published implementation, which holds all neighbours of all masks at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tagseg.benchmarks.materialised import materialised_pamr
from tagseg.benchmarks.timing import Contender, Findings, Table, compare, growth
from tagseg.refine.pamr import refine_masks, refine_plain

_SETTINGS: dict[str, Any] = {"dilations": (1, 2, 4, 8, 12, 24), "iterations": 10, "kernel": "reference"}
_CLASSES = 21  # VOC's with the background


def bench_pamr(device: torch.device) -> Findings:
    """A training batch at the size of its masks, all masks and those of present classes alone."""
    sides = (81, 112) if device.type == "cuda" else (81,)  # a quarter of a crop of 321 and of 448

    def cost(*, batch: int = 2, classes: int = _CLASSES, side: int = 81, **settings: int) -> Callable[[], object]:
        return partial(refine_masks, *_batch(batch, classes, side, device), **{**_SETTINGS, **settings})

    grows = partial(growth, device=device)
    more = 16 if device.type == "cuda" else 1  # small jobs take a GPU no longer than to launch them
    return Findings(
        tuple(_compare(side, device) for side in sides),
        (
            grows(
                "PAMR, 2 x 21 masks",
                "pixels",
                [n * more for n in (41**2, 81**2, 161**2, 321**2)],
                lambda n: cost(side=round(n**0.5)),
            ),
            grows("PAMR, 2 images of 81x81", "masks", [n * more for n in (8, 16, 32, 64)], lambda n: cost(classes=n)),
            grows("PAMR, 2 x 21 masks of 81x81", "iterations", [5, 10, 20, 40], lambda n: cost(iterations=n)),
            grows("PAMR, 21 masks of 81x81", "images", [n * more for n in (2, 4, 8, 16)], lambda n: cost(batch=n)),
        ),
    )


def _compare(side: int, device: torch.device) -> Table:
    image, masks = _batch(16, _CLASSES, side, device)
    present = torch.zeros(16, _CLASSES)
    present[:, 0] = present[:, 5] = present[::2, 9] = 1
    own = present.to(device)
    return compare(
        f"PAMR, 16x21x{side}x{side}, 10 iterations",
        [
            Contender("all neighbours at once, as published", partial(materialised_pamr, image, masks)),
            Contender("one neighbour after another", partial(refine_plain, image, masks, None, **_SETTINGS)),
            Contender("tagseg", partial(refine_masks, image, masks, **_SETTINGS)),
            Contender("tagseg, present masks alone", partial(refine_masks, image, masks, present=own, **_SETTINGS)),
        ],
        device=device,
        rounds=3,
        note="Present are the background and 1 or 2 classes an image: 2.5 masks of 21, as in VOC.",
    )


def _batch(batch: int, classes: int, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(batch, 3, side, side, generator=generator)
    masks = torch.randn(batch, classes, side, side, generator=generator).softmax(1)
    return image.to(device), masks.to(device)
