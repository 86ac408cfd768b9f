"""Progress on stderr: bars in a terminal, elsewhere a line after the first seconds and then one a minute."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

SECONDS_TO_FIRST_LINE = 5.0
SECONDS_BETWEEN_LINES = 60.0
_RECENT_ITEMS = 30  # their pace is the estimate's: the first items are slow, and later ones may cost more

ItemT = TypeVar("ItemT")

console = Console(stderr=True)
# The bars of nested jobs stand below each other, and vanish with the job.
_bars = Progress(
    TextColumn("{task.description}"),
    BarColumn(20),
    MofNCompleteColumn(),
    TextColumn("{task.fields[left]}"),
    TimeElapsedColumn(),
    TextColumn("{task.fields[text]}", table_column=Column(ratio=1, no_wrap=True)),  # shortened where there is no room
    console=console,
    expand=True,
    transient=True,
)


class ProgressBar:
    """Progress of a job; signs come at least once a minute, also while one item takes long.

    Args:
        title: What is done.
        total: Number of items; None if there are none to count. It may turn out too small.
        done: Items that were done before.
        quiet: Show nothing.
    """

    def __init__(self, title: str, total: int | None = None, *, done: int = 0, quiet: bool = False) -> None:
        self.title, self.total, self.text = title, total or 0, ""
        self.quiet = quiet
        self._begin = time.monotonic()
        self._start = (self._begin, done)
        self._times: deque[tuple[float, int]] = deque(maxlen=_RECENT_ITEMS)
        self._next_line = self._begin + SECONDS_TO_FIRST_LINE
        self._lock, self._ended = Lock(), Event()
        self._thread: Thread | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._begin = time.monotonic()
        self._start = (self._begin, self._start[1])
        self._next_line = self._begin + SECONDS_TO_FIRST_LINE
        if self.quiet:
            return self
        if console.is_terminal:
            total = self.total or None
            self._task = _bars.add_task(self.title, total=total, completed=self._start[1], text="", left="")
            _bars.start()
        else:
            self._thread = Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._task is not None:
            _bars.remove_task(self._task)
            if not _bars.tasks:
                _bars.stop()

    @property
    def seconds_per_item(self) -> float:
        """Pace of the recent items."""
        first = self._times[0] if len(self._times) > 1 else self._start
        last = self._times[-1]
        return (last[0] - first[0]) / max(1, last[1] - first[1])

    def seconds_left(self) -> float:
        """Estimate of the time until the end, from the recent items."""
        return self.seconds_per_item * (self.total - self._times[-1][1])

    def forget_pace(self) -> None:
        """Estimate from the next items alone, which cost more or less than those before."""
        self._start = self._times[-1] if self._times else self._start
        self._times.clear()

    def leave_out(self, seconds: float) -> None:
        """Leave out the last seconds, in which no item was worked on, from the pace."""
        self._start = (self._start[0] + seconds, self._start[1])
        self._times = deque([(moment + seconds, done) for moment, done in self._times], _RECENT_ITEMS)

    def update(self, done: int) -> None:
        """Show how many items are done."""
        self._times.append((time.monotonic(), done))
        self.total = max(self.total, done)
        if self._task is not None:
            _bars.update(self._task, completed=done, total=self.total, description=self.title, left=self._left())
        self.note(self.text)
        self._print_if_due()

    def note(self, text: str) -> None:
        """Show a text beside the number of items."""
        self.text = text
        if self._task is not None:
            _bars.update(self._task, text=text)

    def _left(self) -> str:
        return f"about {timedelta(seconds=round(self.seconds_left()))} left"

    def _line(self) -> str:
        """The progress in one line."""
        done = self._times[-1][1] if self._times else self._start[1]
        title = f"{self.title} {done:,}/{self.total:,}" if self.total else self.title
        left = self._left() if self._times else f"{timedelta(seconds=round(time.monotonic() - self._begin))} so far"
        return ", ".join(part for part in (title, self.text, left) if part)

    def _print_if_due(self) -> None:
        with self._lock:
            if self.quiet or self._task is not None or time.monotonic() < self._next_line:
                return
            self._next_line = time.monotonic() + SECONDS_BETWEEN_LINES
        self.print(self._line())

    def _watch(self) -> None:
        while not self._ended.wait(max(0.01, self._next_line - time.monotonic())):
            self._print_if_due()

    def print(self, text: str) -> None:
        """Show a line."""
        if not self.quiet:
            console.print(text, highlight=False, markup=False, soft_wrap=True)


def track(items: Iterable[ItemT], title: str, total: int, *, quiet: bool = False) -> Iterator[ItemT]:
    """Iterate over items and show the progress.

    Args:
        items: Items; each counts as done when the next one is asked for.
        title: What is done.
        total: Number of items.
        quiet: Show nothing.
    """
    with ProgressBar(title, total, quiet=quiet) as bar:
        for done, item in enumerate(items, 1):
            yield item
            bar.update(done)
