"""Time and memory of several variants of a job, measured in turns so that a noisy machine affects all alike."""

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

_SECONDS_PER_ROUND = 0.1  # short calls are repeated until a round takes about this long
_ROUNDS_OF_GROWTH = 3  # each size runs once per round
_MAX_REPEATS = 200


@dataclass(frozen=True)
class Variant:
    """One implementation of a job.

    Attributes:
        name: Name in the table.
        run: Function that does the job once.
        images: Number of images that one call processes, where a rate in images/s makes sense.
        held_bytes: Memory that the variant holds between calls, counted as part of what it needs.
        is_torch: Whether torch does the work, so that its memory can be measured.
    """

    name: str
    run: Callable[[], object]
    images: int | None = None
    held_bytes: int = 0
    is_torch: bool = True


@dataclass(frozen=True)
class Row:
    """Cost of one variant.

    Attributes:
        name: Name of the variant.
        seconds: Seconds per call, the median over all rounds.
        extra_bytes: Peak memory beyond the input; None where it was not measured or torch does not do the work.
        images: Number of images per call, if they are counted.
        rounds: Seconds per call of each round, in order.
    """

    name: str
    seconds: float
    extra_bytes: int | None
    images: int | None = None
    rounds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Table:
    """Comparison of variants; the first row is the baseline.

    Attributes:
        title: Description of the job.
        rows: One row for each variant.
        note: Explanation printed below the table.
    """

    title: str
    rows: tuple[Row, ...]
    note: str = ""

    def speedup(self, row: Row) -> float:
        """Speedup over the first row, per image where images are counted."""
        baseline = self.rows[0]
        return (baseline.seconds / (baseline.images or 1)) / (row.seconds / (row.images or 1))


@dataclass(frozen=True)
class Growth:
    """Time of a job as a function of its size.

    Attributes:
        title: Description of the job.
        along: Quantity that grows.
        points: Pairs of size and seconds.
        slope: Exponent of the power law through the points: 1 is linear.
    """

    title: str
    along: str
    points: tuple[tuple[float, float], ...]
    slope: float


@dataclass(frozen=True)
class ScoreTable:
    """Accuracy of variants of a job.

    Attributes:
        title: Description of the job.
        columns: Name of each score.
        rows: Name of each variant, and its scores in percent.
        note: Explanation printed below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    note: str = ""


@dataclass(frozen=True)
class Measurements:
    """Tables and growth curves of one benchmark."""

    tables: tuple[Table, ...] = ()
    growths: tuple[Growth, ...] = ()
    scores: tuple[ScoreTable, ...] = ()


def compare(
    title: str,
    variants: Sequence[Variant],
    *,
    device: torch.device,
    rounds: int = 5,
    note: str = "",
    long: bool = False,
) -> Table:
    """Time variants in turns after a warm-up, and measure the memory of each.

    Args:
        title: Description of the job.
        variants: The variants; the first is the baseline.
        device: Device that they run on; a GPU is synchronized.
        rounds: Number of rounds; each variant runs once per round.
        note: Explanation printed below the table.
        long: Whether a call takes seconds: one call is the warm-up, and one call is a round.
    """
    memory = [_extra_bytes(variant, device, calls=1 if long else 3) for variant in variants]  # also the warm-up
    repeats = [1 if long else _repeats(variant.run, device) for variant in variants]
    seconds = _time_in_turns([variant.run for variant in variants], repeats, device=device, rounds=rounds)
    rows = (
        Row(variant.name, median(times), size, variant.images, tuple(times))
        for variant, times, size in zip(variants, seconds, memory, strict=True)
    )
    return Table(title, tuple(rows), note)


def growth(
    title: str,
    along: str,
    sizes: Sequence[int],
    make_job: Callable[[int], Callable[[], object]],
    *,
    device: torch.device,
) -> Growth:
    """Time a job at several sizes and fit a power law.

    Args:
        title: Description of the job.
        along: Quantity that the sizes count.
        sizes: Sizes in ascending order.
        make_job: Function that returns the job of a size.
        device: Device that it runs on.
    """
    jobs = [make_job(size) for size in sizes]
    repeats = []
    for job in jobs:
        job()
        repeats.append(_repeats(job, device))
    seconds = _time_in_turns(jobs, repeats, device=device, rounds=_ROUNDS_OF_GROWTH)
    points = [(float(size), median(times)) for size, times in zip(sizes, seconds, strict=True)]
    return Growth(title, along, tuple(points), fitted_slope(points))


def fitted_slope(points: Sequence[tuple[float, float]]) -> float:
    """Fit a power law to sizes and seconds by least squares on logarithms, and return its exponent."""
    sizes, seconds = np.log(points).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def time_call(run: Callable[[], object], device: torch.device, repeats: int = 1) -> float:
    """Return the seconds per call, averaged over consecutive calls."""
    _synchronize(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    _synchronize(device)
    return (time.perf_counter() - start) / repeats


def _time_in_turns(
    jobs: Sequence[Callable[[], object]], repeats: Sequence[int], *, device: torch.device, rounds: int
) -> list[list[float]]:
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for times, job, count in zip(seconds, jobs, repeats, strict=True):
            times.append(time_call(job, device, count))
    return seconds


def _repeats(run: Callable[[], object], device: torch.device) -> int:
    return max(1, min(_MAX_REPEATS, round(_SECONDS_PER_ROUND / max(time_call(run, device), 1e-6))))


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _extra_bytes(variant: Variant, device: torch.device, *, calls: int) -> int | None:
    if not variant.is_torch:
        for _ in range(calls):
            variant.run()
        return None
    if device.type == "cuda":
        # Reserved rather than allocated memory: CUDA graphs keep memory that counts as free.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_reserved(device)
        for _ in range(calls):
            variant.run()
        _synchronize(device)
        extra = torch.cuda.max_memory_reserved(device) - before
    else:
        # PeakBytes sees the calling thread only, and with one thread the CRF has no others.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with PeakBytes() as memory:
                for _ in range(calls):
                    variant.run()
        finally:
            torch.set_num_threads(threads)
        extra = memory.peak
    return extra + variant.held_bytes if extra else None


class PeakBytes(TorchDispatchMode):
    """Context manager that counts the bytes of new tensors: exact, and the same on every machine.

    Attributes:
        now: Bytes that tensors created in the context hold at the moment.
        peak: Most bytes that they held at one time.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for value in tree_iter((args, kwargs)):
            if isinstance(value, Tensor):
                self._register(value, new=False)
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self._register(value, new=True)
        return result

    def _register(self, tensor: Tensor, *, new: bool) -> None:
        """Count a new storage and remember it until it is freed, because its address may be reused then."""
        storage: Any = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        size = size if new else 0
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size
