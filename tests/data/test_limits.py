"""Limits on what is read and decoded."""

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tagseg.data import limits
from tagseg.data.limits import MemoryBudget, hold_file, hold_memory, read_file, read_stream
from tagseg.errors import DataError


def test_threads_never_hold_more_than_the_budget() -> None:
    budget, lock, held, highest = MemoryBudget(100), threading.Lock(), 0, 0

    def work(size: int) -> None:
        nonlocal held, highest
        with budget.hold(size):
            with lock:
                held += min(size, 100)
                highest = max(highest, held)
            time.sleep(0.001)
            with lock:
                held -= min(size, 100)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [30, 60, 1000, 5, 100] * 20))
    assert 60 <= highest <= 100


def test_who_holds_all_decodes_without_waiting_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_LARGE_FILE", 10)
    with hold_file(11), hold_memory(2**40), hold_memory(5):
        pass
    with hold_memory(2**40):  # all of it was given back
        pass


def test_an_error_gives_the_bytes_back() -> None:
    budget = MemoryBudget(10)
    for _ in range(3):
        with pytest.raises(RuntimeError), budget.hold(10):
            raise RuntimeError
    with budget.hold(10):
        pass


def test_larger_files_and_streams_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with path.open("wb") as file:
        file.truncate(2**31 + 1)  # takes no space on the disk
    with pytest.raises(DataError, match=r"a\.bin: has more than 1,024 MiB; divide or reduce"):
        read_file(path)
    with pytest.raises(DataError, match="stdin: has more than 0 MiB"):
        read_stream(io.BytesIO(b"0" * 100), "stdin", 99)
    assert read_stream(io.BytesIO(b"0" * 99), "stdin", 99) == b"0" * 99
