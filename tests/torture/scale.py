"""Measure how a dataset of many images is listed, checked and iterated: python -m tests.torture.scale [IMAGES].

The images are hard links to a hundred files of 64 x 64 pixels; 20,000 by default.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tagseg.data import DataSource
from tagseg.data.check import check

_FILES, _PER_FOLDER, _SIDE = 100, 1000, 64


def write_images(folder: Path, count: int) -> Path:
    """Write a table of `count` images."""
    generator = np.random.default_rng(0)
    files = [folder / f"{number}.png" for number in range(_FILES)]
    for file in files:
        Image.fromarray(generator.integers(0, 255, (_SIDE, _SIDE, 3), np.uint8)).save(file)
    table = folder / "t.csv"
    with table.open("w") as lines:
        lines.write("image,labels\n")
        for number in range(count):
            name = f"images/{number // _PER_FOLDER}/{number}.png"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(files[number % _FILES], folder / name)
            lines.write(f"{name},{'cat' if number % 3 else 'cat;dog'}\n")
    return table


def measure(name: str, count: int, work: Callable[[], object]) -> object:
    """Time of some work for each image, and what it adds to the largest memory of the process."""
    before, start = _peak_memory(), time.perf_counter()
    result = work()
    seconds, growth = time.perf_counter() - start, _peak_memory() - before
    print(
        f"{name:8} {seconds:8.1f} s {1e6 * seconds / count:8.1f} us and {growth / count:8.0f} bytes an image",
        flush=True,
    )
    return result


def main(count: int) -> None:
    """Measure all three."""
    with tempfile.TemporaryDirectory() as folder:
        table = write_images(Path(folder), count)
        source = DataSource(table)
        DataSource("shapes:2").open()  # imports torch
        _forget_peak()
        opened = measure("list", count, source.open)
        measure("iterate", count, lambda: [None for index in range(count) if opened[index] is None])  # type: ignore[index]
        measure("check", count, lambda: check(source, val=None, crop=32, fraction=0.1, seed=0))


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
