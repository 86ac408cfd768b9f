"""The dense CRF beside PyPI's `pydensecrf2`, which wraps the authors' C++ code, and beside a busy CPU core."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._device import usable_cores
from tagseg.benchmarks.synthetic_images import photo_like
from tagseg.benchmarks.timing import Measurements, Row, Table, Variant, compare, growth, time_call
from tagseg.refine.crf import dense_crf

_HEIGHT, _WIDTH, _CLASSES = 375, 500, 21  # as in VOC
_USUAL_CLASSES = 3  # classes present in a usual image, with the background
_TITLE = "dense CRF, 3 of 21 classes"
_ROUNDS, _REPEATS = 5, 3  # beside a busy core
# Program that keeps a core busy until its standard input is closed, which also happens when the benchmark is killed.
_SPIN = """
import sys, threading
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
print(flush=True)
sys.stdin.read()
"""


def bench_crf(device: torch.device) -> Measurements:
    """Measure the CRF on images of 375x500 with 21 classes and 10 iterations, and how the time grows."""
    job = partial(_job, device=device, present=_USUAL_CLASSES)
    on_cpu = device.type == "cpu"
    # Launch overhead dominates small jobs on a GPU, so its sizes are larger.
    height, width = (_HEIGHT, _WIDTH) if on_cpu else (4 * _HEIGHT, 4 * _WIDTH)
    size = f"{height}x{width}"
    pixels = [100**2, 200**2, 400**2] if on_cpu else [800**2, 1600**2, 3200**2]
    batch_sizes = [1, 2, 4] if on_cpu else [8, 16, 32]
    growths = [
        growth(_TITLE, "pixels", pixels,
               lambda count: job(height=round(count**0.5), width=round(count**0.5)), device=device),
        growth(f"dense CRF, {size}", "classes present", [3, 8, 21],
               lambda present: _job(device=device, present=present, height=height, width=width), device=device),
        growth(f"{_TITLE}, {size}", "iterations", [5, 10, 20],
               lambda count: job(iterations=count, height=height, width=width), device=device),
        growth(_TITLE, "images per batch", batch_sizes, lambda count: job(batch_size=count), device=device),
    ]  # fmt: skip
    return Measurements(tuple(_tables(device)), tuple(growths))


def _tables(device: torch.device) -> Iterator[Table]:
    yield _compare(device)
    if device.type == "cpu" and usable_cores() > 1:
        yield _compare_busy_core()


def _compare(device: torch.device) -> Table:
    variants = [
        Variant("tagseg, 21 classes present", _job(device=device, present=_CLASSES), images=1),
        Variant("tagseg, 3 of 21 classes present", _job(device=device, present=_USUAL_CLASSES), images=1),
    ]
    if device.type != "cpu":  # a CPU processes the images of a batch one by one
        batch = _job(device=device, present=_USUAL_CLASSES, batch_size=8)
        variants.append(Variant("tagseg, 3 of 21 classes, batch of 8", batch, images=8))
    note = "pydensecrf2 is not installed, so there is no baseline: pip install tagseg[bench]"
    if find_spec("pydensecrf"):
        note = "pydensecrf2 runs on the CPU, and its time does not depend on the classes present."
        image, probs = scene(_HEIGHT, _WIDTH, _CLASSES)
        variants.insert(0, Variant("pydensecrf2, 21 classes", lambda: authors_crf(image, probs), images=1))
    return compare(f"dense CRF, {_HEIGHT}x{_WIDTH}, 10 iterations", variants, device=device, note=note)


def _compare_busy_core() -> Table:
    """Time the CRF on all cores, on all but one, and on all while another process keeps one of them busy."""
    device, cores = torch.device("cpu"), usable_cores()
    job = _job(device=device, present=_CLASSES)
    variants: list[tuple[str, int, Callable[[], AbstractContextManager[object]]]] = [
        (f"a thread for each of {cores} cores", cores, nullcontext),
        ("one thread fewer", cores - 1, nullcontext),
        ("a thread for each core, one core busy", cores, _busy_core),
    ]
    job()  # warm-up
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in variants}
    for _ in range(_ROUNDS):
        for name, threads, surroundings in variants:
            with _torch_threads(threads), surroundings():
                seconds[name].append(time_call(job, device, _REPEATS))
    rows = (Row(name, median(times), None, 1, tuple(times)) for name, times in seconds.items())
    note = "A busy core should cost no more than that core: the last row should take no longer than the one above it."
    return Table(f"dense CRF, {_HEIGHT}x{_WIDTH}, 21 classes present, beside a busy core", tuple(rows), note)


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch's threads, and restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _busy_core() -> Iterator[subprocess.Popen[bytes]]:
    """Keep a core busy by a process that ends with the block."""
    with subprocess.Popen([sys.executable, "-c", _SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is busy from here on
        yield process  # Popen closes its standard input, and waits for it


def _job(
    *, device: torch.device, present: int, height: int = _HEIGHT, width: int = _WIDTH, batch_size: int = 1,
    iterations: int = 10,
) -> Callable[[], Tensor]:  # fmt: skip
    scenes = [scene(height, width, present, seed=seed) for seed in range(batch_size)]
    images, probs = (torch.stack(part).to(device) for part in zip(*scenes, strict=True))
    return lambda: dense_crf(images, probs, iterations=iterations)


def scene(height: int, width: int, present: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Generate an image with the probabilities of 21 classes.

    Args:
        height: Height in pixels.
        width: Width in pixels.
        present: Number of classes with a probability above 0.
        seed: Random seed.

    Returns:
        The image, uint8 [3, H, W], and the probabilities, [21, H, W].
    """
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(1, present, height // 32 + 2, width // 32 + 2, generator=generator)
    probs = F.interpolate(scores, size=(height, width), mode="bilinear")[0].softmax(0)
    return photo_like(height, width, seed=seed), torch.cat([probs, probs.new_zeros(_CLASSES - present, height, width)])


def authors_crf(image: Tensor, probs: Tensor) -> Tensor:
    """Compute `dense_crf` of one image by pydensecrf2."""
    from pydensecrf.densecrf import DenseCRF2D

    classes, height, width = probs.shape
    crf = DenseCRF2D(width, height, classes)
    crf.setUnaryEnergy(np.ascontiguousarray(-probs.clamp(1e-5, 1).log().flatten(1).numpy()))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=np.ascontiguousarray(image.permute(1, 2, 0).numpy()), compat=10)
    return torch.from_numpy(np.array(crf.inference(10))).view_as(probs)
