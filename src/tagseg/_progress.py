"""Progress on stderr: bars in a terminal, elsewhere a line after the first seconds and then one a minute."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
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
    """Progress of a job.

    Args:
        title: What is done.
        total: Number of items.
        done: Items that were done before.
        quiet: Show nothing.
    """

    def __init__(self, title: str, total: int, *, done: int = 0, quiet: bool = False) -> None:
        self.title, self.total, self.text = title, total, ""
        self.quiet = quiet
        self._start = (time.monotonic(), done)
        self._times: deque[tuple[float, int]] = deque(maxlen=_RECENT_ITEMS)
        self._next_line = self._start[0] + SECONDS_TO_FIRST_LINE
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if console.is_terminal and not self.quiet:
            self._task = _bars.add_task(self.title, total=self.total, completed=self._start[1], text="", left="")
            _bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        now = time.monotonic()
        self._times.append((now, done))
        if self.quiet:
            return
        left = f"about {timedelta(seconds=round(self.seconds_left()))} left"
        if self._task is not None:
            _bars.update(self._task, completed=done, description=self.title, text=self.text, left=left)
        elif now >= self._next_line:
            self._next_line = now + SECONDS_BETWEEN_LINES
            self.print(", ".join(part for part in (f"{self.title} {done}/{self.total}", self.text, left) if part))

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
