"""Run the parts of a job on a Ray cluster: a Ray Data pipeline with one worker for each GPU or core.

Ray repeats a part whose worker was lost, on another one, so a part must leave the same files however often it is run.
"""

import logging
import os
import pickle
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from tagseg._files import writing
from tagseg.errors import ConfigError, ProcessLost, TagsegError, first_line

_AUTO, _LOCAL = "auto", "local"
_SECONDS_TO_CONNECT = 5.0
_MAX_ATTEMPTS = 4  # at a part; a worker that is killed by one of its images would be replaced forever
_ATTEMPTS_FOLDER = ".attempts"
_ADVICE = "name auto, local or HOST:PORT with {ray}"

_LARGEST_PART, _SMALLEST_PART, _MIN_PARTS = 1024, 16, 64

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


def check_ray(address: str) -> None:
    """Raise a `ConfigError` in seconds unless Ray is installed and the address answers.

    Args:
        address: `auto` for the cluster that this machine belongs to, `local` for one that lasts as long as the job, or
            HOST:PORT of a cluster's head.
    """
    if find_spec("ray") is None:
        raise ConfigError("a cluster needs Ray, which is not installed", "install it with: pip install 'tagseg[ray]'")
    target = os.environ.get("RAY_ADDRESS", address) if address == _AUTO else address
    if target in (_AUTO, _LOCAL):
        return
    host, _, port = target.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{target!r} is not the address of a Ray cluster", _ADVICE)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise ConfigError(
            f"no Ray cluster answers at {target} ({error.strerror or error})", f"check that it runs, or {_ADVICE}"
        ) from None


def part_size(count: int) -> int:
    """Size of the parts of so many images: small enough for many workers, and not to lose hours with one."""
    return min(_LARGEST_PART, max(_SMALLEST_PART, count // _MIN_PARTS))


def run_on_ray(
    address: str,
    task: Callable[[PartT], ResultT],
    parts: Sequence[PartT],
    *,
    folder: Path,
    resume: str,
    on_gpus: bool = True,
    workers: int | None = None,
) -> Iterator[ResultT]:
    """Run a task on each part, and yield the results as they come.

    Args:
        address: The cluster, as in `check_ray`.
        task: Function, sent once to each worker.
        parts: Arguments, sent as the workers need them; `str(part)` names one in messages.
        folder: Existing folder that all machines share.
        resume: How the job is resumed, for messages.
        on_gpus: Run a worker on each GPU, if the cluster has any; otherwise on each core.
        workers: Number of workers; by default one for each GPU or core.

    Raises:
        TagsegError: The task raised it, or the cluster or too many workers were lost.
    """
    check_ray(address)
    attempts = folder / _ATTEMPTS_FOLDER
    shutil.rmtree(attempts, ignore_errors=True)
    with writing(attempts):
        attempts.mkdir()
    try:
        with _connected(address, workers) as ray:
            try:
                yield from _run(ray, task, parts, attempts, on_gpus=on_gpus, workers=workers)
            except ray.exceptions.RayTaskError:  # raised by the task: a bug, with its traceback
                raise
            except ray.exceptions.RayError as error:
                raise ProcessLost(
                    f"the cluster or its workers were lost ({first_line(error)[:200]})",
                    f"look at ray status, and {resume}",
                ) from None
    finally:
        shutil.rmtree(attempts, ignore_errors=True)


@contextmanager
def _connected(address: str, workers: int | None) -> Iterator[Any]:
    """Connect to a cluster and keep its messages, which are many, out of the terminal; they are in its own logs."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a local cluster reports nothing to others
    import ray
    import ray.data

    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    progress_bars, context.enable_progress_bars = context.enable_progress_bars, False
    is_ours = not ray.is_initialized()
    with Path(os.devnull).open("w") as sink, redirect_stdout(sink):
        try:
            if is_ours:
                _connect(ray, address, workers)
            yield ray
        finally:
            context.enable_progress_bars = progress_bars
            if is_ours:
                ray.shutdown()


def _connect(ray: Any, address: str, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == _LOCAL:
        options |= {"include_dashboard": False, "num_cpus": workers}
    try:
        ray.init(address=address, **options)
    except Exception as error:  # none runs here, it has other versions, or it does not start in time: Ray has no type
        reason = " ".join(str(error).split())
        problem = "no Ray cluster runs on this machine" if address == _AUTO else f"{address}: cannot be joined"
        advice = "check the cluster, and that its versions of Ray and Python are those of this machine"
        if address == _AUTO:
            advice = "start one by ray start --head, or name local with {ray}"
        if address == _LOCAL:
            problem, advice = "Ray could not be started on this machine", "try again when it is less busy"
        raise ConfigError(f"{problem} ({reason[:200]})", advice) from None


def _run(
    ray: Any,
    task: Callable[[PartT], ResultT],
    parts: Sequence[PartT],
    attempts: Path,
    *,
    on_gpus: bool,
    workers: int | None,
) -> Iterator[ResultT]:
    """`run_on_ray` with a connection."""
    resources = ray.cluster_resources()
    num_gpus = int(resources.get("GPU", 0)) if on_gpus else 0
    size = min(len(parts), workers or num_gpus or int(resources.get("CPU", 1)))
    shared_task = ray.put(task)  # held here as long as workers may ask for it
    rows = [
        {"number": number, "title": str(part), "part": pickle.dumps(part)} for number, part in enumerate(parts)
    ]  # a block, and so a task, for each
    results = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        _Worker,
        fn_constructor_args=([shared_task], str(Path.cwd()), attempts),  # a list, or Ray would resolve the reference
        num_cpus=None if num_gpus else 1,
        num_gpus=1 if num_gpus else None,
        # More than a task for a worker keeps it busy; many more would wait for it while others are idle. A smaller
        # pool is allowed, or the worker of a lost machine could wait for a place until all others have ended.
        compute=ray.data.ActorPoolStrategy(
            min_size=1, max_size=size, initial_size=size, max_tasks_in_flight_per_actor=2
        ),
    )
    del rows
    for row in results.iter_rows():
        result: ResultT | TagsegError = pickle.loads(row["result"])
        if isinstance(result, TagsegError):
            raise result
        if row["attempts"] > 1:
            logger.warning("A worker was lost: %s were repeated", row["title"])
        yield result


class _Worker(Generic[PartT, ResultT]):
    """Runs the task in a process of its own, wherever the cluster has room.

    Args:
        shared_task: Reference to the task.
        current_folder: Folder that relative paths start from.
        attempts: Folder in which the attempts at each part are counted.
    """

    def __init__(self, shared_task: list[Any], current_folder: str, attempts: Path) -> None:
        self._shared_task, self._current_folder, self._attempts = shared_task, current_folder, attempts
        self._task: Callable[[PartT], ResultT] | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Run the task on the part in a row; an error that the user can fix is a result."""
        number = 0
        try:
            if self._task is None:
                self._task = self._start()
            number = self._count_attempt(str(row["number"]), str(row["title"]))
            result: ResultT | TagsegError = self._task(pickle.loads(row["part"]))
        except TagsegError as error:
            result = error
        return {"result": pickle.dumps(result), "attempts": number, "title": row["title"]}

    def _start(self) -> Callable[[PartT], ResultT]:
        import ray

        try:
            os.chdir(self._current_folder)
        except OSError:
            raise ConfigError(
                f"the machine {socket.gethostname()} has no folder {self._current_folder}",
                "run the command in a folder that all machines share",
            ) from None
        task: Callable[[PartT], ResultT] = ray.get(self._shared_task[0])
        return task

    def _count_attempt(self, name: str, title: str) -> int:
        """Number of this attempt at a part, from 1."""
        try:
            with (self._attempts / name).open("ab") as file:
                file.write(b".")
            number = (self._attempts / name).stat().st_size
        except OSError:
            raise ConfigError(
                f"the machine {socket.gethostname()} does not see {self._attempts.parent}, or may not write there",
                "name a folder that all machines share with {out}",
            ) from None
        if number > _MAX_ATTEMPTS:
            raise ProcessLost(
                f"{_MAX_ATTEMPTS} workers died at {title}",
                "often the memory is full: use fewer {workers}; or predict these images alone to find the cause",
            )
        return number
