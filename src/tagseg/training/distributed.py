"""Processes, devices and process-wide state of a training run, by means of accelerate."""

import atexit
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState
from torch import Tensor
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from tagseg._device import multiplies_bfloat16, pick_device
from tagseg.errors import DataError, Interrupted, ProcessLost, TagsegError, unknown_name

ItemT = TypeVar("ItemT")

# In messages of gloo, NCCL and torch's store after a process has ended.
_SIGNS_OF_LOSS = ("onnection closed", "onnection reset", "roken pipe", "onnection was likely closed", "remote process")
_USE_CPU = "ACCELERATE_USE_CPU"  # read by accelerate
# How long processes wait for each other: the others do nothing while the main process validates and tunes thresholds.
_TIMEOUT = timedelta(hours=6)


def processes() -> PartialState:
    """Processes of this run: one, or those that `accelerate launch` or `torchrun` started."""
    state = PartialState(cpu=train_on_cpu(), timeout=_TIMEOUT)
    if state.num_processes > 1:
        # A group that still exists at exit may abort the process.
        atexit.unregister(_end_process_group)
        atexit.register(_end_process_group)
    return state


def _end_process_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def train_on_cpu() -> bool:
    """Whether to train on the CPU; accelerate has to be told, or processes without GPUs do not find each other."""
    requested = os.environ.get(_USE_CPU, "").lower() in ("1", "true", "yes")
    return requested or ("LOCAL_RANK" in os.environ and not torch.cuda.is_available())


def is_main_process() -> bool:
    """Whether this is the main process."""
    return bool(processes().is_main_process)


def average_over_processes(value: Tensor) -> Tensor:
    """Mean of a number over the processes of the run, which all have to call this; without gradient.

    The gradients of the processes are averaged. Where a loss divides by a number that each process counts in its share
    of the batch, such as its labeled pixels, the mean makes it the loss of the whole batch.
    """
    if not torch.distributed.is_initialized():
        return value
    total = value.detach().to(torch.float32)
    torch.distributed.all_reduce(total)
    return total / torch.distributed.get_world_size()


@contextmanager
def requested_device(device: str) -> Iterator[None]:
    """Let accelerate use a device: `auto`, `cpu` or `cuda`."""
    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device for training", device, ("auto", "cpu", "cuda"))
    if device != "auto":
        pick_device(device)
    before = os.environ.get(_USE_CPU)
    if device == "cpu":
        os.environ[_USE_CPU] = "true"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_USE_CPU, None)
        else:
            os.environ[_USE_CPU] = before


@contextmanager
def accelerator(*, precision: str, gradient_accumulation: int) -> Iterator[Accelerator]:
    """Accelerator of one run.

    Accelerate keeps the state of its first Accelerator for the whole process, such as the precision, and refuses
    another one. The run gets a state of its own, and afterwards the caller's is put back.

    Args:
        precision: `fp32`, `bf16`, `fp16`, or `auto`, which is bf16 on GPUs that multiply it natively.
        gradient_accumulation: Micro-batches per step.
    """
    with preserve_accelerate_state():
        AcceleratorState._shared_state.clear()
        GradientState._shared_state.clear()
        yield Accelerator(
            cpu=train_on_cpu(),
            mixed_precision=mixed_precision(precision, processes().device),
            gradient_accumulation_steps=gradient_accumulation,
        )


@contextmanager
def preserve_accelerate_state() -> Iterator[None]:
    """Restore accelerate's process-wide state at the end; a process group of several processes stays."""
    states = (AcceleratorState, GradientState, PartialState)
    saved = [dict(state._shared_state) for state in states]
    try:
        yield
    finally:
        for state, values in zip(states, saved, strict=True):
            joined_group = state is PartialState and state._shared_state.get("num_processes", 1) > 1
            if not joined_group:
                state._shared_state.clear()
                state._shared_state.update(values)


@contextmanager
def cudnn_benchmark(enabled: bool) -> Iterator[None]:
    """Let cuDNN choose its kernels by timing them, or not; it pays where all images have one size."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = enabled
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def explain_lost_processes() -> Iterator[None]:
    """Turn the error after another process of the run, or a data worker, has ended into one line."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, TagsegError):
            raise
        text = str(error)
        if "DataLoader worker" in text and ("killed by signal" in text or "exited unexpectedly" in text):
            raise _worker_lost(_reason(text), has_no_room="Bus error" in text) from error
        if torch.distributed.is_initialized() and any(sign in text for sign in _SIGNS_OF_LOSS):
            raise ProcessLost(
                f"another process of this run has ended ({_reason(text)})",
                "look at its last message, and run the same command again to resume",
            ) from error
        raise


def _worker_lost(reason: str, *, has_no_room: bool = False) -> ProcessLost:
    return ProcessLost(
        f"a data worker has ended ({reason})",
        "it was out of shared memory: enlarge /dev/shm (docker run --shm-size), or lower {workers}"
        if has_no_room
        else "often the memory is full: lower {workers}, and run the same command again to resume",
    )


def _reason(text: str) -> str:
    """First sentence of a message of torch, without its place in the sources."""
    return text.strip().splitlines()[0].rpartition("] ")[2].partition(". ")[0].rstrip(".")


class StopRequest:
    """Whether a signal has asked the run to stop.

    Attributes:
        received: Whether a signal has come.
        activity: What is finished before the run stops, in words.
        checkpoint_step: Step of the last checkpoint; 0 if there is none.
    """

    received = False
    activity = "this step"
    checkpoint_step = 0

    def agreed(self, accelerator: Accelerator) -> bool:
        """Whether any process was asked to stop: all have to stop at the same step."""
        if accelerator.num_processes == 1:
            return self.received
        return bool(accelerator.reduce(torch.tensor(float(self.received), device=accelerator.device)).item())

    def acknowledge(self) -> None:
        """Say what happens now; safe in a signal handler, which may interrupt a print."""
        last = f"the last checkpoint is at step {self.checkpoint_step}" if self.checkpoint_step else "no checkpoint yet"
        with suppress(OSError):
            os.write(2, f"\nStopping after {self.activity} (Ctrl-C again quits at once; {last})\n".encode())


@contextmanager
def stop_signals(*, quiet: bool = False) -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request to stop after the step; a second one stops at once.

    Args:
        quiet: Do not acknowledge a signal: another process does.

    Raises:
        Interrupted: A second signal came.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield stop
        return

    def request(number: int, _: object) -> None:
        signal.signal(number, signal.default_int_handler)  # raises KeyboardInterrupt
        if not (stop.received or quiet):
            stop.acknowledge()
        stop.received = True

    handlers = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with interruptible("stopped at once"):
            yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None if it was not set by Python


@contextmanager
def interruptible(problem: str) -> Iterator[None]:
    """Turn Ctrl-C into an error of one line, where the same command can be run again.

    Args:
        problem: What was stopped.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(problem, "run the same command again to resume") from None


@contextmanager
def iterate(loader: Iterable[ItemT]) -> Iterator[Iterator[ItemT]]:
    """Iterate over a loader, and end its worker processes at the end.

    They ignore SIGTERM, by which Python would end them at exit: after an error it would wait for them forever.
    """
    iterator = iter(loader)
    try:
        yield _with_short_errors(iterator)
    finally:
        if isinstance(iterator, _MultiProcessingDataLoaderIter):
            iterator._shutdown_workers()


def _with_short_errors(items: Iterator[ItemT]) -> Iterator[ItemT]:
    """Items of a loader; the error of a worker process is reported in one line, without torch's traceback."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except (ConnectionError, EOFError) as error:  # while a tensor was being handed over
            raise _worker_lost("its connection closed") from error
        except DataError as error:
            if "Traceback" not in error.problem:  # raised in this process
                raise
            # torch rebuilds a worker's error from its printed traceback, whose last line is the class and the message.
            _, _, message = error.problem.strip().splitlines()[-1].partition("DataError: ")
            raise DataError(message) from None
        yield item


def ignore_signals(_worker: int) -> None:
    """Keep a data worker alive through a signal to the whole process group: the current step needs its images."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def mixed_precision(name: str, device: torch.device) -> str:
    """Name of a precision in accelerate."""
    if name == "auto":
        return "bf16" if device.type == "cuda" and multiplies_bfloat16(device) else "no"
    return "no" if name == "fp32" else name
