"""Measure ways of doing the same thing side by side, in turns, so that a noisy machine is equally unkind to all."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from tagseg.benchmarks.memory import PeakBytes

_SECONDS_A_ROUND = 0.1  # short calls are repeated until a round takes about this long
_MOST_REPEATS = 200


@dataclass(frozen=True)
class Contender:
    """One way of doing the job.

    Attributes:
        name: what it is called in the table.
        run: does the job once.
        images: how many images one call handles, for those jobs where people count images a second.
        held: bytes that it holds between calls, which are part of what it needs.
    """

    name: str
    run: Callable[[], object]
    images: int | None = None
    held: int = 0


@dataclass(frozen=True)
class Row:
    """What one way costs.

    Attributes:
        name: the way.
        seconds: of one call, the median of all rounds.
        extra_bytes: the most that it held at once beyond its input; None where torch does not do the work.
        images: how many images that was, if they are counted.
        rounds: the seconds of each round, in their order.
    """

    name: str
    seconds: float
    extra_bytes: int | None
    images: int | None = None
    rounds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Table:
    """A comparison; the first row is what the others are compared with.

    Attributes:
        title: the job.
        rows: the ways.
        note: what a reader has to know beside the figures.
    """

    title: str
    rows: tuple[Row, ...]
    note: str = ""

    def times_faster(self, row: Row) -> float:
        """How many times faster a way is than the first, by image where images are counted."""
        first = self.rows[0]
        return (first.seconds / (first.images or 1)) / (row.seconds / (row.images or 1))


@dataclass(frozen=True)
class Growth:
    """How the cost of a job grows.

    Attributes:
        title: the job.
        along: what grows.
        points: size and seconds.
        slope: the exponent of the power law through the points, by least squares on logarithms: 1 is linear.
    """

    title: str
    along: str
    points: tuple[tuple[float, float], ...]
    slope: float


@dataclass(frozen=True)
class Findings:
    """All that a benchmark found out."""

    tables: tuple[Table, ...] = ()
    growths: tuple[Growth, ...] = ()


def compare(
    title: str,
    contenders: Sequence[Contender],
    *,
    device: torch.device,
    rounds: int = 5,
    note: str = "",
    long: bool = False,
) -> Table:
    """Time the contenders in turns after a warm-up, and measure the memory of each.

    Args:
        title: the job.
        contenders: the ways; the first is what the others are compared with.
        device: where they run; a GPU is waited for.
        rounds: how often each has its turn.
        note: printed below the table.
        long: a call takes seconds: one is enough to warm up, and one is a round.
    """
    memory = [_extra_bytes(contender, device, calls=1 if long else 3) for contender in contenders]  # warms up, too
    repeats = [1 if long else _repeats(contender.run, device) for contender in contenders]
    seconds: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for own, contender, times in zip(seconds, contenders, repeats, strict=True):
            own.append(_time(contender.run, device, times))
    rows = (
        Row(contender.name, median(own), size, contender.images, tuple(own))
        for contender, own, size in zip(contenders, seconds, memory, strict=True)
    )
    return Table(title, tuple(rows), note)


def growth(
    title: str,
    along: str,
    sizes: Sequence[int],
    make: Callable[[int], Callable[[], object]],
    *,
    device: torch.device,
    rounds: int = 3,
) -> Growth:
    """Time a job at several sizes and fit a power law.

    Args:
        title: the job.
        along: what the sizes count.
        sizes: rising.
        make: gives the job of a size.
        device: where it runs.
        rounds: how often each size has its turn.
    """
    jobs = [make(size) for size in sizes]
    repeats = []
    for job in jobs:
        job()
        repeats.append(_repeats(job, device))
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for own, job, times in zip(seconds, jobs, repeats, strict=True):
            own.append(_time(job, device, times))
    points = [(float(size), median(own)) for size, own in zip(sizes, seconds, strict=True)]
    return Growth(title, along, tuple(points), fitted_slope(points))


def fitted_slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent of the power law that fits sizes and seconds best, by least squares on their logarithms."""
    sizes, seconds = np.log(points).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def _repeats(run: Callable[[], object], device: torch.device) -> int:
    return max(1, min(_MOST_REPEATS, round(_SECONDS_A_ROUND / max(_time(run, device, 1), 1e-6))))


def _time(run: Callable[[], object], device: torch.device, times: int) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(times):
        run()
    _wait(device)
    return (time.perf_counter() - start) / times


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _extra_bytes(contender: Contender, device: torch.device, *, calls: int) -> int | None:
    if device.type == "cuda":
        # What torch reserves, not what it hands out: graphs of launches keep memory that counts as free.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_reserved(device)
        for _ in range(calls):
            contender.run()
        _wait(device)
        extra = torch.cuda.max_memory_reserved(device) - before
    else:
        with PeakBytes() as memory:
            for _ in range(calls):
                contender.run()
        extra = memory.peak
    return extra + contender.held if extra else None
