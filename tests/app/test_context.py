"""Jobs run one at a time, in their order, and a job that nobody waits for is taken out."""

import threading
from concurrent.futures import CancelledError
from functools import partial

import pytest

from tagseg.app.context import ModelQueue, QueueFullError


def test_jobs_run_one_by_one_in_their_order() -> None:
    queue, running = ModelQueue(), threading.Semaphore(1)
    done: list[int] = []

    def job(number: int) -> int:
        assert running.acquire(blocking=False)
        done.append(number)
        running.release()
        return number

    futures = [queue.submit(partial(job, number)) for number in range(50)]
    assert [future.result(10) for future in futures] == list(range(50)) == done
    assert queue.run(lambda: job(50)) == 50
    queue.close()


def test_the_queue_says_how_many_jobs_are_before_one() -> None:
    queue, go = ModelQueue(max_waiting=2), threading.Event()
    futures = [queue.submit(go.wait, name) for name in ("first", "second", "third")]
    assert [queue.jobs_before(name) for name in ("first", "second", "third", "other")] == [0, 1, 2, None]
    assert len(queue) == 3
    with pytest.raises(QueueFullError):
        queue.submit(go.wait)
    assert futures[1].cancel()
    assert queue.jobs_before("third") == 1
    go.set()
    assert futures[2].result(10)
    with pytest.raises(CancelledError):
        futures[1].result()
    assert queue.jobs_before("third") is None
    queue.close()


def test_an_error_of_a_job_reaches_who_waits_and_the_next_job_runs() -> None:
    queue = ModelQueue()
    with pytest.raises(ZeroDivisionError):
        queue.run(lambda: 1 // 0)
    assert queue.run(lambda: 1) == 1
    queue.close()
