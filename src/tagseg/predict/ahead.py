"""Reading, writing and counting in threads, while the network is busy."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tagseg._device import usable_cores

THREADS = min(8, usable_cores())
_MOST_BYTES = 2**28  # of results that wait, beside the few that are being made

Item = TypeVar("Item")
Result = TypeVar("Result")


def until_error(items: Iterable[Item], errors: list[Exception]) -> Iterator[Item]:
    """The items before the first error, which is kept to be raised when they are done with."""
    try:
        yield from items
    except Exception as error:
        errors.append(error)


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, size: Callable[[Result], int] = lambda _: 0
) -> Iterator[Result]:
    """Apply a function in threads, a few items ahead of the results, which come in the items' order.

    It pays where the function leaves Python's lock alone most of the time, as the codecs of images do. An error is
    raised when its result would have come, and one of the items after the results of those before it.

    Args:
        function: must be safe to call from several threads at once.
        items: taken one by one in the caller's thread.
        size: the bytes of a result, which bound how many may wait.
    """
    pool = ThreadPoolExecutor(THREADS)
    waiting: deque[Future[Result]] = deque()
    errors: list[Exception] = []
    try:
        for item in until_error(items, errors):
            waiting.append(pool.submit(function, item))
            while len(waiting) > 2 * THREADS or sum(_finished(future, size) for future in waiting) > _MOST_BYTES:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if errors:
            raise errors[0]
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(future: Future[Result], size: Callable[[Result], int]) -> int:
    return size(future.result()) if future.done() and future.exception() is None else 0
