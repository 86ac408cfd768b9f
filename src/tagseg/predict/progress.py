"""Progress of a prediction on stderr: a bar in a terminal, elsewhere a line at once and then one a minute."""

import time
from threading import Event, Thread
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 60.0


class PredictionProgress:
    """Shows that a job is alive, also while one image takes long.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self._stage, self._image, self._detail = "Listing images", "", ""
        self._done, self._total, self._start = 0, 0, time.monotonic()
        self._ended, self._thread = Event(), None if quiet or self._console.is_terminal else Thread(target=self._print)
        self._bar: Progress | None = None
        if self._thread is None and not quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            times = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[detail]}", markup=False))
            self._bar = Progress(*columns, *times, console=self._console)
            self._task = self._bar.add_task(self._stage, total=None, detail="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._bar:
            self._bar.stop()
        if self._thread:
            self._thread.join()

    def start(self, total: int) -> None:
        """Show that the images are listed and prediction begins."""
        self._stage, self._total, self._start = "Predicting", total, time.monotonic()
        if not total:
            self._print_line("Predicting: nothing to do, all images were predicted before")
        elif not self._bar:
            self._print_line(self._line())
        if self._bar:
            self._bar.update(self._task, description=self._stage, total=total)

    def advance(self, num_images: int) -> None:
        """Show how many images are done."""
        self._done, self._detail = num_images, ""
        if self._bar:
            # The number of frames of a video is known only at its end.
            self._bar.update(self._task, completed=num_images, total=max(num_images, self._total), detail="")

    def tile(self, num_done: int, total: int) -> None:
        """Show how much of a tiled image is done."""
        self._detail = f"tiled image {num_done / total:.0%}"
        if self._bar:
            self._bar.update(self._task, detail=self._detail)

    def _print(self) -> None:
        self._print_line(f"{self._stage} ...")
        while not self._ended.wait(SECONDS_BETWEEN_LINES):
            self._print_line(self._line())

    def _print_line(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _line(self) -> str:
        seconds = time.monotonic() - self._start
        if not self._total:
            return f"{self._stage}: {_clock(seconds)}"
        line = f"{self._stage}: {self._done:,} of {max(self._done, self._total):,} images, {_clock(seconds)}"
        if self._done:
            line += f", {_clock(seconds / self._done * max(0, self._total - self._done))} left"
        return f"{line}; {self._detail}" if self._detail else line


def _clock(seconds: float) -> str:
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"
