"""Limits on what is read and decoded, so that no file, however small, can fill the memory."""

import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO

from tagseg.errors import DataError

MAX_IMAGE_BYTES = 2**30  # of an image's file; 179 megapixels of 16 bits a channel, not compressed
MAX_TEXT_BYTES = 2**31  # of a table or JSON; the annotations of COCO have 450 MB
MAX_BYTES_IN_FLIGHT = 2**30  # that all threads of a process decode at a time; a larger image is decoded alone
_LARGE_FILE = 2**26  # bytes; the content of smaller files is not counted
_CHUNK = 2**16


class MemoryBudget:
    """Bytes that threads share: each acquires what it needs before it decodes, and waits until that is free.

    Args:
        total: Number of bytes. A larger request gets the whole budget and runs alone.
    """

    def __init__(self, total: int) -> None:
        self._total = self._free = total
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._of_thread = threading.local()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold bytes while the block runs; a thread that holds all of them already acquires nothing more."""
        if getattr(self._of_thread, "holds_all", False):
            yield
            return
        size = min(size, self._total)
        with self._turn, self._changed:  # in turn, so that small images do not keep a large one waiting forever
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        self._of_thread.holds_all = size == self._total
        try:
            yield
        finally:
            self._of_thread.holds_all = False
            with self._changed:
                self._free += size
                self._changed.notify_all()


@contextmanager
def hold_memory(size: int) -> Iterator[None]:
    """Hold bytes of the process's budget while an image is decoded."""
    with _budget(os.getpid()).hold(size):
        yield


@contextmanager
def hold_file(size: int) -> Iterator[None]:
    """Hold the whole budget while a large file is read and decoded; small files, which are many, wait for nothing."""
    if size < _LARGE_FILE:
        yield
    else:
        with hold_memory(MAX_BYTES_IN_FLIGHT):
            yield


def read_file(path: Path, limit: int = MAX_IMAGE_BYTES) -> bytes:
    """Read a file of up to `limit` bytes; its size is looked at first."""
    with path.open("rb") as file:
        require_size(path, os.fstat(file.fileno()).st_size, limit)
        return file.read()


def read_stream(stream: IO[bytes], name: object, limit: int = MAX_IMAGE_BYTES) -> bytes:
    """Read a stream of up to `limit` bytes, whatever size it claims to have."""
    content = io.BytesIO()
    while chunk := stream.read(_CHUNK):
        content.write(chunk)
        require_size(name, content.tell(), limit)
    return content.getvalue()


def require_size(name: object, size: int, limit: int = MAX_IMAGE_BYTES) -> None:
    """Raise a `DataError` if a file is larger than `limit` bytes."""
    if size > limit:
        raise DataError(f"{name}: has more than {limit / 2**20:,.0f} MiB", "divide or reduce the file, or remove it")


@lru_cache(maxsize=1)
def _budget(process_id: int) -> MemoryBudget:  # noqa: ARG001  a process may be forked while threads hold bytes
    return MemoryBudget(MAX_BYTES_IN_FLIGHT)
