"""Decoded pictures kept as plain arrays in files, so that an epoch after the first decodes nothing.

The operating system holds the files in memory while there is room, for all workers and processes together.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import psutil

from tagseg.data.dataset import Facts, ImageTags, Pixels
from tagseg.data.files import FilePictures, FileRef

_TRIED = 16  # pictures whose size stands for that of all


@dataclass(frozen=True)
class CachedPictures:
    """Pictures of files that are decoded once.

    Attributes:
        pictures: where they come from.
        folder: where the arrays lie.
    """

    pictures: FilePictures
    folder: Path

    def read(self, index: int) -> Pixels:
        array = self.folder / f"{_fingerprint(self.pictures.files[index])}.npy"
        try:
            return np.load(array)  # type: ignore[no-any-return]
        except OSError:  # it is not there yet
            pixels = self.pictures.read(index)
        unfinished = array.with_suffix(f".{os.getpid()}.tmp")
        try:
            with unfinished.open("wb") as file:
                np.save(file, pixels)
            unfinished.replace(array)
        except OSError:  # the disk is full by now: the picture will have to be decoded again
            unfinished.unlink(missing_ok=True)
        return pixels

    def facts(self, index: int) -> Facts:
        return self.pictures.facts(index)

    def digest(self, index: int) -> bytes:
        return self.pictures.digest(index)

    def select(self, indices: Sequence[int]) -> Self:
        return type(self)(self.pictures.select(indices), self.folder)


def cached(data: ImageTags, folder: Path) -> ImageTags:
    """The same dataset with its decoded pictures kept in a folder, if half of the free memory and disk can hold them.

    Args:
        data: tagged pictures; those that are not in files are left as they are.
        folder: is made if it is used, and belongs to the caller.
    """
    pictures = data.pictures
    if not isinstance(pictures, FilePictures) or not len(data):
        return data
    tried = range(0, len(data), max(1, len(data) // _TRIED))
    size = sum(pictures.read(index).nbytes for index in tried) / len(tried) * len(data)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if size > min(psutil.virtual_memory().available, shutil.disk_usage(folder.parent).free) / 2:
        return data
    folder.mkdir(exist_ok=True)
    return ImageTags(data.classes, data.names, data.tags, CachedPictures(pictures, folder))


@contextmanager
def removed_at_the_end(folder: Path) -> Iterator[None]:
    """Remove a folder of decoded pictures when the work with them ends, however it does."""
    try:
        yield
    finally:
        for _ in range(20):  # workers may still be writing what they were asked for
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)


def _fingerprint(file: FileRef) -> str:
    """A name that changes with the file (or the zip that it lies in)."""
    state = file.path.stat()
    return hashlib.blake2b(f"{file} {state.st_mtime_ns} {state.st_size}".encode(), digest_size=16).hexdigest()
