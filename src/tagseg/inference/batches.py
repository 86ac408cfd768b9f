"""Batches of equal shape out of a mixed stream, with the results in the stream's order."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from tagseg.data.dataset import Pixels

_AHEAD = 16  # batches; in VOC, whose pictures have some hundred shapes, this fills most of them
_MOST_PIXELS = 2**25  # how much of the stream is held at once, whatever the batch size


class HasPixels(Protocol):
    """Anything that carries a decoded picture."""

    @property
    def pixels(self) -> Pixels:
        """RGB, [H, W, 3]."""


Item = TypeVar("Item", bound=HasPixels)
Result = TypeVar("Result")


class _Held(Generic[Item, Result]):
    """A picture of the stream that has not been handed out."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.shape: Hashable = item.pixels.shape
        self.pixels = item.pixels.shape[0] * item.pixels.shape[1]
        self.batch: Future[list[Result]] | None = None  # the results of its batch, once that has been started
        self.place = 0  # in its batch

    def done(self) -> bool:
        return self.batch is not None and self.batch.done()


def in_batches(
    items: Iterable[Item], run: Callable[[list[Item]], list[Result]], *, batch_size: int, at_once: int = 1
) -> Iterator[Result]:
    """Run pictures of one shape together. Looks ahead by some batches, since neighbours often differ in shape.

    Args:
        items: the stream.
        run: gives a result for each of a list of items of one shape.
        batch_size: how many at most.
        at_once: batches that run at the same time, in threads; 1 runs them in the caller's.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, got {batch_size}")
    held: deque[_Held[Item, Result]] = deque()
    groups: dict[Hashable, list[_Held[Item, Result]]] = defaultdict(list)
    pool = ThreadPoolExecutor(at_once) if at_once > 1 else None

    def start(shape: Hashable) -> None:
        group = groups.pop(shape)
        batch = [one.item for one in group]
        results: Future[list[Result]] = Future()
        if pool:
            results = pool.submit(run, batch)
        else:
            results.set_result(run(batch))
        for place, one in enumerate(group):
            one.batch, one.place = results, place

    def first() -> Result:
        one = held.popleft()
        if one.batch is None:
            start(one.shape)
        assert one.batch is not None
        return one.batch.result()[one.place]

    def full() -> bool:
        return len(held) >= _AHEAD * batch_size or sum(one.pixels for one in held) > _MOST_PIXELS

    try:
        for item in items:
            last: _Held[Item, Result] = _Held(item)
            held.append(last)
            groups[last.shape].append(last)
            if len(groups[last.shape]) == batch_size:
                start(last.shape)
            while held and (held[0].done() or full()):
                yield first()
        for shape in list(groups):
            start(shape)
        while held:
            yield first()
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)
