"""What a person sees of a run: a live bar in a terminal, plain lines everywhere else."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class Display:
    """Shows the steps of a run; `quiet` shows nothing, as on all processes but the first."""

    def __init__(self, steps: int, *, start: int = 0, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.steps = steps
        self._first, self._began, self._line_at = start, time.monotonic(), 0.0
        self._bar: Progress | None = None
        if self.console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._task = self._bar.add_task("training", total=steps, completed=start, numbers="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, text: str) -> None:
        """A line of its own."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, step: int, *, epoch: int, epochs: int, numbers: str) -> None:
        """One step is done."""
        title = f"epoch {epoch}/{epochs}"
        if self._bar:
            self._bar.update(self._task, completed=step, description=title, numbers=numbers)
        elif time.monotonic() - self._line_at > SECONDS_BETWEEN_LINES or step == self.steps:
            self._line_at = time.monotonic()
            per_step = (self._line_at - self._began) / max(1, step - self._first)
            left = time.strftime("%H:%M:%S", time.gmtime(per_step * (self.steps - step)))
            self.say(f"{title}  step {step}/{self.steps}  {numbers}  {left} left")
