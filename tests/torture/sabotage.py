"""Commands in processes of their own that are killed, or meet a full disk, at an exact moment of their writing.

A moment is a step of `write_atomically`: the temporary file is made, is on the disk, gets its final name, and the name
is on the disk; or a folder gets its final name.
"""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

MODULES = ["tagseg.cli", "tagseg.api", "tagseg.training.loop", "tagseg.training.logging", "tests.torture.sabotage"]
SECONDS = 120


@dataclass(frozen=True)
class Sabotage:
    """What happens to a process.

    Attributes:
        moment: Number of the moment at which it happens, from 1; 0 never.
        action: `kill`, `full` (no space is left on the disk) or the path of a file to delete.
        clock: `stands` still or `jumps` by up to a day, forwards and backwards.
        count: File to which the number of moments is written at the end.
    """

    moment: int = 0
    action: str = "kill"
    clock: str = ""
    count: Path | None = None


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    code: int | None
    output: str
    seconds: float

    def assert_one_line(self, *parts: str) -> None:
        """The command failed, and one line says why; there is no traceback."""
        assert self.code not in (0, None), self.output
        assert "Traceback" not in self.output, self.output
        (line,) = [line for line in self.output.splitlines() if line.startswith("tagseg: ")]
        assert all(part in line for part in parts), self.output


def run(
    arguments: list[str], log: Path, sabotage: Sabotage | None = None, *, kill_after: float | None = None
) -> Ending:
    """Run a command of tagseg; a process that has torch imported is forked for it.

    Args:
        arguments: Command and its arguments.
        log: File for its output.
        sabotage: What happens to it.
        kill_after: Seconds after which it is killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    process = context.Process(target=_run, args=(arguments, log, sabotage or Sabotage()))
    start = time.monotonic()
    process.start()
    process.join(SECONDS if kill_after is None else kill_after)
    if process.is_alive():
        assert kill_after is not None, f"{arguments} takes too long"
        process.kill()
        process.join()
    return Ending(process.exitcode, log.read_text(errors="replace") if log.exists() else "", time.monotonic() - start)


def _run(arguments: list[str], log: Path, sabotage: Sabotage) -> None:
    import torch

    from tagseg import cli

    torch.set_num_threads(1)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = ["tagseg", *arguments]
    moments = _Moments(sabotage)
    os.fsync = moments.before(os.fsync)
    Path.rename = moments.before(Path.rename)  # type: ignore[method-assign]
    Path.replace = moments.before(Path.replace)  # type: ignore[method-assign]
    Path.touch = moments.before(Path.touch)  # type: ignore[method-assign]
    if sabotage.clock:
        start, offset = time.time(), random.Random(0)
        jumps = sabotage.clock == "jumps"
        time.time = time.monotonic = time.perf_counter = lambda: start + (offset.uniform(-1e5, 1e5) if jumps else 0)
    try:
        cli.main()
    finally:
        if sabotage.count:
            sabotage.count.write_text(str(moments.number))
        sys.stdout.flush()


class _Moments:
    def __init__(self, sabotage: Sabotage) -> None:
        self.number, self._sabotage = 0, sabotage

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.number += 1
            if self.number == self._sabotage.moment:
                self._act()
            return function(*arguments, **options)

        return call

    def _act(self) -> None:
        action = self._sabotage.action
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "full":
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        else:
            Path(action).unlink()
