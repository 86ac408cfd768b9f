"""What the page shows of a training: its output, its curves, and masks of its last checkpoint."""

import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from threading import Lock

from tagseg._hub import CHECKPOINT_FILE
from tagseg.app.context import Context, ModelQueue, QueueFullError
from tagseg.app.images import ShownImages
from tagseg.app.markup import ground_truth_cell, image_cell, notice, overlay_cell, render
from tagseg.app.training_process import TrainingProcess, shell_line
from tagseg.errors import TagsegError
from tagseg.predict.predictor import load
from tagseg.report.curves import training_curves
from tagseg.report.gallery import Cell
from tagseg.report.run_data import read_run
from tagseg.report.stages import evenly_spaced
from tagseg.training.run_folder import METRICS_FILE, validation_data

_SECONDS_BETWEEN_DRAWINGS = 10.0  # which take time from the training
_NUM_IMAGES = 4
_SIDE = 260
_LINES = 12  # of the output


class RunView:
    """HTML made from a file of a run, and made again when the file has changed, but not all the time.

    Args:
        file: Name of the file.
        make: Makes the HTML, given the folder of the run.
    """

    def __init__(self, file: str, make: Callable[[Path], str]) -> None:
        self._file, self._make, self._lock = file, make, Lock()
        self._run: Path | None = None
        self._stamp: object = None  # of the file that the HTML shows
        self._time = -inf
        self._html = ""

    def html(self, run: Path | None, *, is_running: bool) -> str:
        """HTML of a run; empty before there is something to show."""
        with self._lock:
            if run != self._run:
                self._run, self._stamp, self._time, self._html = run, None, -inf, ""
            stamp = None if run is None else _stamp(run / self._file)
            is_due = not is_running or time.monotonic() - self._time > _SECONDS_BETWEEN_DRAWINGS
            if run is not None and stamp is not None and stamp != self._stamp and is_due:
                try:
                    self._html = self._make(run)
                except QueueFullError:
                    return self._html  # at the next look
                except TagsegError as error:
                    self._html = notice(f"Nothing to show: {error}")
                self._stamp, self._time = stamp, time.monotonic()
            return self._html


class Watcher:
    """What is shown of the training: its output, its curves, and masks of its last checkpoint.

    Args:
        context: The training, and the queue in front of the models.
    """

    def __init__(self, context: Context) -> None:
        self.process: TrainingProcess = context.training
        self._curves = RunView(METRICS_FILE, _draw_curves)
        self._masks = RunView(CHECKPOINT_FILE, partial(_draw_masks_in_queue, context.queue))

    @property
    def is_running(self) -> bool:
        """Whether the training runs."""
        return self.process.state == "running"

    def status(self) -> str:
        """HTML of the command, its state and its last lines."""
        process = self.process
        return render(
            "train_status",
            command=shell_line(process.command),
            state=process.state,
            run=process.run,
            lines=process.output.splitlines()[-_LINES:],
        )

    def curves(self) -> str:
        """HTML of the curves."""
        return self._curves.html(self.process.run, is_running=self.is_running)

    def masks(self) -> str:
        """HTML of validation images with the masks of the last checkpoint."""
        return self._masks.html(self.process.run, is_running=self.is_running)


def _draw_curves(run: Path) -> str:
    return render("train_curves", curves=training_curves(read_run(run, load_model=False)))


def _draw_masks_in_queue(queue: ModelQueue, run: Path) -> str:
    return queue.run(partial(_draw_masks, run))


def _draw_masks(run: Path) -> str:
    """Some validation images as the last checkpoint segments them, on the CPU: a GPU is the training's."""
    predictor = load(run / CHECKPOINT_FILE, device="cpu", optimize=False)
    data, masks = validation_data(run)
    images = ShownImages(data, masks, have_tags=True)
    rows: list[tuple[str, dict[str, Cell]]] = []
    for index in sorted(evenly_spaced(data.image_ids, _NUM_IMAGES)):
        pixels = data.images.read(index)
        prediction = predictor.predict(pixels, probabilities=False)
        classes = list(predictor.classes)
        cells = {
            "Image": image_cell(pixels, data.image_ids[index], side=_SIDE),
            "Mask": overlay_cell(pixels, prediction.mask, classes, "mask", side=_SIDE),
        }
        if (ground_truth := images.ground_truth(index)) is not None:
            cells["Ground truth"] = ground_truth_cell(pixels, ground_truth, classes, side=_SIDE)
        rows.append((f"{data.image_ids[index]}, tagged {', '.join(images.tags(index)) or 'nothing'}", cells))
    return render("train_masks", rows=rows)


def _stamp(path: Path) -> object:
    """What changes whenever a file does; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
