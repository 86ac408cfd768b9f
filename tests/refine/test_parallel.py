from itertools import pairwise
from threading import Barrier, Thread

import pytest
import torch

from tagseg.refine._parallel import Workers, run_with_workers


def num_threads_in_a_new_thread() -> int:
    counts: list[int] = []
    thread = Thread(target=lambda: counts.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return counts[0]


def test_number_of_threads_is_unchanged_in_all_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        outside: list[int] = []

        def work(workers: Workers) -> list[int]:
            inside: list[int] = []
            all_started = Barrier(3)

            def record(_: int) -> None:
                all_started.wait(timeout=30)
                inside.append(torch.get_num_threads())

            workers.for_each(record, range(3))
            outside.append(num_threads_in_a_new_thread())
            return inside

        assert run_with_workers(work) == [1, 1, 1]
        assert outside == [3]
        assert torch.get_num_threads() == num_threads_in_a_new_thread() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_each_item_is_processed_once(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        processed: list[int] = []
        run_with_workers(lambda workers: workers.for_each(processed.append, range(1000)))
        assert sorted(processed) == list(range(1000))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_reach_the_caller(threads: int) -> None:
    def fail(piece: int) -> None:
        raise ValueError(f"piece {piece} is wrong")

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with pytest.raises(ValueError, match="is wrong"):
            run_with_workers(lambda workers: workers.for_each(fail, range(10)))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("length", [0, 1, 2048, 5000, 10**6])
def test_blocks_cover_the_range_and_end_at_multiples_of_64(length: int) -> None:
    blocks = Workers().blocks(length)
    assert sum(block.stop - block.start for block in blocks) == length
    assert all(block.stop % 64 == 0 for block in blocks[:-1])
    assert all(left.stop == right.start for left, right in pairwise(blocks))
