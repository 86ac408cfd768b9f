"""The dense CRF beside PyPI's `pydensecrf2`, which wraps its authors' C++ code and computes every class on one core."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.benchmarks.photos import photo_like
from tagseg.benchmarks.timing import Contender, Findings, Table, compare, growth
from tagseg.refine.crf import dense_crf

_HEIGHT, _WIDTH, _CLASSES = 375, 500, 21  # as in VOC
_FEW = 3  # classes that occur in a usual image
_TITLE = "dense CRF, 3 of 21 classes"


def bench_crf(device: torch.device) -> Findings:
    """Images of 375x500 with 21 classes, 10 iterations, and how the time grows."""
    few = partial(_job, device=device, active=_FEW)
    on_cpu = device.type == "cpu"
    # On a GPU what is small takes as long as its launches, which says nothing of how the cost grows.
    height, width = (_HEIGHT, _WIDTH) if on_cpu else (4 * _HEIGHT, 4 * _WIDTH)
    size = f"{height}x{width}"
    growths = [
        growth(_TITLE, "pixels", [100**2, 200**2, 400**2] if on_cpu else [800**2, 1600**2, 3200**2],
               lambda pixels: few(height=round(pixels**0.5), width=round(pixels**0.5)), device=device),
        growth(f"dense CRF, {size}", "classes that occur", [3, 8, 21],
               lambda active: _job(device=device, active=active, height=height, width=width), device=device),
        growth(f"{_TITLE}, {size}", "iterations", [5, 10, 20],
               lambda count: few(iterations=count, height=height, width=width), device=device),
        growth(_TITLE, "images a batch", [1, 2, 4] if on_cpu else [8, 16, 32],
               lambda images: few(batch_size=images), device=device),
    ]  # fmt: skip
    return Findings((_beside_the_authors(device),), tuple(growths))


def _beside_the_authors(device: torch.device) -> Table:
    ways = [
        Contender("tagseg, all 21 classes occur", _job(device=device, active=_CLASSES), images=1),
        Contender("tagseg, 3 of 21 classes occur", _job(device=device, active=_FEW), images=1),
    ]
    if device.type != "cpu":  # a CPU takes them one after another
        ways.append(Contender("tagseg, 3 of 21, 8 at once", _job(device=device, active=_FEW, batch_size=8), images=8))
    note = "pydensecrf2 is not installed, so there is nothing to compare with: pip install tagseg[bench]"
    if find_spec("pydensecrf"):
        note = "pydensecrf2 runs on the CPU and takes equally long however many classes occur."
        image, probs = scene(_HEIGHT, _WIDTH, _CLASSES)
        ways.insert(0, Contender("pydensecrf2, all 21 classes", lambda: authors_crf(image, probs), images=1))
    return compare(f"dense CRF, {_HEIGHT}x{_WIDTH}, 10 iterations", ways, device=device, note=note)


def _job(
    *, device: torch.device, active: int, height: int = _HEIGHT, width: int = _WIDTH, batch_size: int = 1,
    iterations: int = 10,
) -> Callable[[], Tensor]:  # fmt: skip
    scenes = [scene(height, width, active, seed=seed) for seed in range(batch_size)]
    images, probs = (torch.stack(part).to(device) for part in zip(*scenes, strict=True))
    return lambda: dense_crf(images, probs, iterations=iterations)


def scene(height: int, width: int, active: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """An image, uint8 [3, H, W], and soft masks of 21 classes, of which so many occur, [21, H, W]."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(1, active, height // 32 + 2, width // 32 + 2, generator=generator)
    probs = F.interpolate(scores, size=(height, width), mode="bilinear")[0].softmax(0)
    return photo_like(height, width, seed=seed), torch.cat([probs, probs.new_zeros(_CLASSES - active, height, width)])


def authors_crf(image: Tensor, probs: Tensor, iterations: int = 10) -> Tensor:
    """What `dense_crf` computes for one image, by pydensecrf2."""
    from pydensecrf.densecrf import DenseCRF2D

    classes, height, width = probs.shape
    crf = DenseCRF2D(width, height, classes)
    crf.setUnaryEnergy(np.ascontiguousarray(-probs.clamp(1e-5, 1).log().flatten(1).numpy()))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=np.ascontiguousarray(image.permute(1, 2, 0).numpy()), compat=10)
    return torch.from_numpy(np.array(crf.inference(iterations))).view_as(probs)
