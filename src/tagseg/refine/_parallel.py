"""Threads that share the work of one function call, for a CPU whose cores may be busy.

torch's own threads split every operator into equal parts and wait for the slowest one, so one busy core slows down all
of them. Here each thread runs torch's operators on one core and takes the next piece of work when it has finished the
last one: a thread on a busy core takes fewer pieces.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, Thread
from typing import TypeVar

import torch

ResultT = TypeVar("ResultT")
PieceT = TypeVar("PieceT")

_lock = Lock()


class Workers:
    """Threads that take pieces of work from one queue: the calling thread and any number of helpers.

    Args:
        executor: Pool of the helpers.
        helpers: Number of helpers; 0 if the calling thread does all the work.
    """

    def __init__(self, executor: ThreadPoolExecutor | None = None, helpers: int = 0) -> None:
        self._executor = executor
        self._helpers = helpers

    def blocks(self, length: int, *, least: int = 2**14, most: int = 2**15) -> list[slice]:
        """Split a range into blocks: several for each thread, so that a slow thread delays the others little.

        Args:
            length: Length of the range.
            least: Shortest block worth the overhead of its operators, a multiple of 64.
            most: Longest block that a CPU's caches hold, a multiple of 64.
        """
        size = max(least, min(most, length // (4 * (self._helpers + 1))))
        size -= size % 64  # ends where a vector register ends, so that blocks are rounded like the whole
        return [slice(start, min(start + size, length)) for start in range(0, length, size)]

    def for_each(self, function: Callable[[PieceT], None], pieces: Sequence[PieceT]) -> None:
        """Call a function once for each piece, in any order, and return when all calls have returned."""
        queue = iter(pieces)  # taking the next item of a sequence is atomic

        def take_pieces() -> None:
            for piece in queue:
                function(piece)

        helpers: list[Future[None]] = []
        if self._executor is not None:
            helpers = [self._executor.submit(take_pieces) for _ in range(min(self._helpers, len(pieces) - 1))]
        try:
            take_pieces()
        finally:
            for helper in helpers:
                # A helper that has not started yet would find nothing to do.
                if not helper.cancel():
                    helper.result()


def run_with_workers(function: Callable[[Workers], ResultT]) -> ResultT:
    """Call a function with as many workers as torch uses threads, none of them with gradients.

    The number of torch's threads is the same before and after, in this thread and in all others.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        with torch.no_grad():
            return function(Workers())
    with ThreadPoolExecutor(threads, initializer=_use_one_core) as executor:
        return executor.submit(function, Workers(executor, threads - 1)).result()


def _use_one_core() -> None:
    """Make torch's operators run on one core, and without gradients, in the calling thread only."""
    torch.set_grad_enabled(False)
    # OpenMP stores the number of threads per thread, but torch also passes it on to threads that start later. This
    # default is restored from a thread that ends at once.
    with _lock:
        default = torch.get_num_threads()
        torch.set_num_threads(1)
        restore = Thread(target=torch.set_num_threads, args=(default,))
        restore.start()
        restore.join()
