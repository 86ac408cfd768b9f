"""Batches of equal shape out of a mixed stream, with the results in the stream's order."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol, TypeVar

from tagseg.data.dataset import Pixels

_MOST_PIXELS = 2**26  # how much of the stream is held at once, whatever the batch size


class HasPixels(Protocol):
    """Anything that carries a decoded picture."""

    @property
    def pixels(self) -> Pixels:
        """RGB, [H, W, 3]."""


Item = TypeVar("Item", bound=HasPixels)
Result = TypeVar("Result")


def in_batches(
    items: Iterable[Item], run: Callable[[list[Item]], list[Result]], *, batch_size: int
) -> Iterator[Result]:
    """Run pictures of one shape together. Looks ahead by a few batches, since neighbours often differ in shape.

    Args:
        items: the stream.
        run: gives a result for each of a list of items of one shape.
        batch_size: how many at most.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, got {batch_size}")
    ahead = 4 * batch_size if batch_size > 1 else 1
    window: list[Item] = []
    pixels = 0
    for item in items:
        window.append(item)
        pixels += item.pixels.shape[0] * item.pixels.shape[1]
        if len(window) == ahead or pixels > _MOST_PIXELS:
            yield from _run_window(window, run, batch_size)
            window, pixels = [], 0
    yield from _run_window(window, run, batch_size)


def _run_window(window: list[Item], run: Callable[[list[Item]], list[Result]], batch_size: int) -> list[Result]:
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(window):
        groups[item.pixels.shape].append(place)
    results: dict[int, Result] = {}
    for places in groups.values():
        for start in range(0, len(places), batch_size):
            chunk = places[start : start + batch_size]
            results.update(zip(chunk, run([window[place] for place in chunk]), strict=True))
    return [results[place] for place in range(len(window))]
