"""What every tab and route of the page works with, and the queue in front of the model."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from tagseg.app.training_process import TrainingProcess
from tagseg.predict.predictor import Predictor

Output = TypeVar("Output")

MAX_WAITING = 64  # jobs; a large upload that waits lies on the disk, a small one takes up to 1 MiB of memory


class QueueFullError(Exception):
    """The queue is full."""


class ModelQueue:
    """Jobs that need the model, run one by one by a thread of its own.

    Args:
        max_waiting: Most jobs that may wait.
    """

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._names: dict[Future[Any], str] = {}  # of the jobs that run or wait, in their order
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of jobs that run or wait."""
        return len(self._names)

    def submit(self, job: Callable[[], Output], name: str = "") -> Future[Output]:
        """Append a job.

        Args:
            job: Called in the model's thread. A job that still waits is taken out by `Future.cancel`.
            name: Name under which `jobs_before` finds it.

        Raises:
            QueueFullError: The queue is full.
        """
        with self._lock:
            if len(self._names) > self._max_waiting:
                raise QueueFullError
            future = self._worker.submit(job)
            self._names[future] = name
        future.add_done_callback(self._remove)  # calls it at once if the job is done already
        return future

    def run(self, job: Callable[[], Output]) -> Output:
        """Append a job and wait for its result; for code that has a thread of its own, as events of gradio do."""
        return self.submit(job).result()

    def jobs_before(self, name: str) -> int | None:
        """Number of jobs before the one of this name, 0 once it runs; None if it neither runs nor waits."""
        with self._lock:
            names = list(self._names.values())
        return names.index(name) if name in names else None

    def close(self) -> None:
        """End the thread; jobs that wait are cancelled."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _remove(self, future: Future[Any]) -> None:
        with self._lock:
            self._names.pop(future, None)


@dataclass(frozen=True)
class Context:
    """The model and the run of the page.

    Attributes:
        model: The model, loaded once. Only jobs of the queue may use it.
        model_path: What the user named: a run folder, a model file, or `default`.
        run: The run folder that the page shows; None if the page was opened for a model alone.
        queue: Jobs that need the model, one at a time.
        is_local: Whether the page is served to this machine alone.
        training: The training that the page started, if any.
    """

    model: Predictor
    model_path: str
    run: Path | None
    queue: ModelQueue
    is_local: bool = True
    training: TrainingProcess = field(default_factory=TrainingProcess)
