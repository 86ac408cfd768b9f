"""The training that the page started: a command in a process of its own, which Ctrl-C stops at a checkpoint."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Literal

from tagseg.errors import ConfigError

State = Literal["none", "running", "finished", "stopped", "failed"]

_STOPPED = 130  # exit status after Ctrl-C
_TAIL_BYTES = 8192


class TrainingProcess:
    """One command `tagseg train` at a time.

    It is not ended by the end of the page's process but asked to stop, and then ends at its next checkpoint. What it
    prints goes to a file rather than a pipe, which would break then.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._lock = Lock()
        self.command: tuple[str, ...] = ()
        self.run: Path | None = None

    def start(self, command: Sequence[str], run: Path) -> None:
        """Start a command.

        Args:
            command: Arguments of `tagseg`, as a person would type them.
            run: Folder of the run that it writes.

        Raises:
            ConfigError: Another one runs, or this system cannot stop one at a checkpoint.
        """
        if os.name != "posix":
            raise ConfigError("this system cannot stop a training at a checkpoint", "type the command in a terminal")
        with self._lock:
            if self.state == "running":
                raise ConfigError(f"the training of {self.run} runs", "stop it before you start another one")
            if self._output is not None:
                self._output.close()
            self._output = TemporaryFile()  # noqa: SIM115  read until the next start
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tagseg", *command],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "120"},
                start_new_session=True,  # a Ctrl-C in the terminal of the page must not reach its data workers
            )
            self.command, self.run = tuple(command), run

    def stop(self) -> None:
        """Ask the command to stop, as Ctrl-C does; it writes a checkpoint first."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the command ends."""
        if self._process is not None:
            self._process.wait(seconds)

    @property
    def state(self) -> State:
        """Whether the command runs, or how it has ended."""
        if self._process is None:
            return "none"
        status = self._process.poll()
        if status is None:
            return "running"
        return "finished" if status == 0 else "stopped" if status in (_STOPPED, -signal.SIGINT) else "failed"

    @property
    def output(self) -> str:
        """The last lines that the command has printed."""
        if self._output is None:
            return ""
        descriptor = self._output.fileno()  # shared with the process, whose position must not move
        size = os.fstat(descriptor).st_size
        start = max(0, size - _TAIL_BYTES)
        text = os.pread(descriptor, size - start, start).decode(errors="replace")
        return text.partition("\n")[2] if start else text


def shell_line(arguments: Sequence[str]) -> str:
    """A command of `tagseg` as a person types it."""
    return shlex.join(["tagseg", *arguments])
