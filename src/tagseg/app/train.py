"""Tab Train: check a dataset; start, watch, stop and resume a training by the commands that a person would type."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import gradio as gr

import tagseg
from tagseg.api import validation_data
from tagseg.app.context import Context
from tagseg.app.images import ShownImages
from tagseg.app.markup import ground_truth_cell, image_cell, notice, overlay_cell, render, shown_errors
from tagseg.app.training_process import TrainingProcess
from tagseg.data.check_report import CheckReport
from tagseg.errors import ConfigError, TagsegError
from tagseg.models.serialization import CHECKPOINT_FILE
from tagseg.predict.predictor import load
from tagseg.report.curves import training_curves
from tagseg.report.gallery import Cell
from tagseg.report.run_data import read_run
from tagseg.report.stages import evenly_spaced
from tagseg.training.run_folder import METRICS_FILE

NOT_LOCAL = (
    "Training reads tables and images from this machine's disk and writes to it, so it can be started only from a page "
    "that is served to this machine alone. Open it there, without --host, or type tagseg train in a terminal."
)
_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_BETWEEN_DRAWINGS = 10.0  # of the curves: drawing them takes time from the training
_NUM_IMAGES = 4
_SIDE = 260
_LINES = 12  # of the output


@dataclass(frozen=True)
class Choice:
    """What is to be trained.

    Attributes:
        data: Table, folder or other data, as `tagseg train` takes it.
        images: Folder or zip with the images; may be empty.
        out: Folder of the run.
        recipe: Name of a recipe or TOML file.
        changes: Settings to change, such as `training.epochs=5`.
    """

    data: str
    images: str
    out: str
    recipe: str
    changes: tuple[str, ...]

    @classmethod
    def parse(cls, data: str, images: str, out: str, recipe: str, changes: str) -> "Choice":
        """Choice as the page has it; settings are separated by spaces or lines."""
        return cls(data.strip(), images.strip(), out.strip(), recipe.strip(), tuple(changes.split()))

    def check_command(self) -> list[str]:
        """Arguments of the command that validates the data."""
        return ["check", *self._arguments()]

    def train_command(self) -> list[str]:
        """Arguments of the command that trains, or resumes a training."""
        if not self.out:
            raise ConfigError("the folder of the run is missing", "name a new folder, or one to resume")
        data, *options = self._arguments()
        return ["train", data, "--out", self.out, *options]

    def _arguments(self) -> list[str]:
        if not self.data:
            raise ConfigError("the data is missing", "name a table, a folder, or shapes for generated images")
        if self.data.startswith("-"):
            raise ConfigError(f"{self.data}: begins as an option does", f"write ./{self.data}")
        options = ["--images", self.images] if self.images else []
        changes = [argument for change in self.changes for argument in ("--set", change)]
        return [self.data, *options, "--recipe", self.recipe, *changes]


def run_check(choice: Choice) -> CheckReport:
    """Validate the data by `tagseg check`.

    Raises:
        ConfigError: It cannot be opened; the message is the command's.
    """
    command = [sys.executable, "-m", "tagseg", *choice.check_command(), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if not done.stdout.strip():
        lines = done.stderr.strip().splitlines() or ["tagseg check has printed nothing"]
        raise ConfigError(lines[-1].removeprefix("tagseg: "))
    values = json.loads(done.stdout)
    return CheckReport.model_validate({key: value for key, value in values.items() if key in CheckReport.model_fields})


class Watcher:
    """What is shown of the training: its output, its curves, and masks of its last checkpoint.

    Args:
        context: The training, and the queue in front of the models.
    """

    def __init__(self, context: Context) -> None:
        self._context, self._lock = context, Lock()
        self._run: Path | None = None
        self._drawn: tuple[object, float] = (None, 0.0)  # size of the metrics that the curves show, and when
        self._curves = ""
        self._checkpoint: object = None  # that the masks show
        self._masks = ""

    @property
    def process(self) -> TrainingProcess:
        """The training."""
        return self._context.training

    def status(self) -> str:
        """HTML of the command, its state and its last lines."""
        process = self.process
        lines = process.output.splitlines()
        return render(
            "train_status",
            command=_shell(process.command) if process.command else "",
            state=process.state,
            run=process.run,
            lines=lines[-_LINES:],
        )

    def curves(self) -> str:
        """HTML of the curves; redrawn when there is something new, but not all the time."""
        with self._lock:
            run = self._current_run()
            if run is None:
                return ""
            state = _stamp(run / METRICS_FILE)
            last_state, last_time = self._drawn
            is_due = self.process.state != "running" or time.monotonic() - last_time > _SECONDS_BETWEEN_DRAWINGS
            if state != last_state and is_due:
                try:
                    curves = training_curves(read_run(run, load_model=False))
                    self._curves = render("train_curves", curves=curves)
                except TagsegError:
                    return self._curves  # not written yet
                self._drawn = (state, time.monotonic())
            return self._curves

    def masks(self) -> str:
        """HTML of validation images with the masks of the last checkpoint; computed once for each."""
        with self._lock:
            run = self._current_run()
            state = None if run is None else _stamp(run / CHECKPOINT_FILE)
            if run is None or state is None:
                return self._masks
            if state != self._checkpoint:
                try:
                    rows = self._context.queue.run(lambda: _checkpoint_masks(run))
                except TagsegError as error:
                    self._masks = notice(f"No masks to show: {error}")
                else:
                    self._masks = render("train_masks", rows=rows)
                self._checkpoint = state
            return self._masks

    def _current_run(self) -> Path | None:
        """Folder of the run; what is known of another one is dropped."""
        if self._run != self.process.run:
            self._run, self._drawn, self._curves = self.process.run, (None, 0.0), ""
            self._checkpoint, self._masks = None, ""
        return self._run


def _checkpoint_masks(run: Path) -> list[tuple[str, dict[str, Cell]]]:
    """Some validation images as the last checkpoint segments them, on the CPU: a GPU is the training's."""
    predictor = load(run / CHECKPOINT_FILE, device="cpu", optimize=False)
    data, masks = validation_data(run)
    images = ShownImages(data, masks, have_tags=True)
    rows = []
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
    return rows


def _stamp(path: Path) -> object:
    """What changes whenever a file does; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _shell(arguments: Sequence[str]) -> str:
    """A command as a person types it."""
    return shlex.join(["tagseg", *arguments])


def _commands(*values: str) -> str:
    """HTML of both commands; what is missing for them is said in their place."""
    choice = Choice.parse(*values)
    try:
        commands = [_shell(choice.check_command()), _shell(choice.train_command())]
    except ConfigError as error:
        return render("train_commands", commands=[], problem=str(error))
    return render("train_commands", commands=commands, problem="")


def _recipes() -> list[tuple[str, str]]:
    """Recipes that learn from tags, each with its purpose."""
    return [
        (f"{name}: {purpose}", name)
        for name, purpose in tagseg.recipes().items()
        if tagseg.Recipe.load(name).model.method != "supervised"
    ]


def build(context: Context) -> None:
    """Build the tab."""
    if not context.is_local:
        gr.HTML(notice(NOT_LOCAL), apply_default_css=False)
        return
    watcher = Watcher(context)
    with gr.Row():
        data = gr.Textbox(
            label="Table or folder", info="On this machine, as tagseg train takes it", placeholder="photos.csv"
        )
        images = gr.Textbox(
            label="Folder of the images", info="If the table does not say where they are", placeholder="photos/"
        )
        out = gr.Textbox(label="Folder of the run", info="A new one, or one to resume", placeholder="runs/photos")
    with gr.Row():
        recipe = gr.Dropdown(
            _recipes(), value="default", label="Recipe", info="Or the path of a TOML file", allow_custom_value=True
        )
        changes = gr.Textbox(
            label="Settings to change", info="tagseg recipes --settings lists them", placeholder="training.epochs=5"
        )
    fields = [data, images, out, recipe, changes]
    commands = gr.HTML(_commands("", "", "", "default", ""), apply_default_css=False)
    with gr.Row():
        check = gr.Button("Check the data", min_width=140)
        start = gr.Button("Start or resume", variant="primary", min_width=140)
        stop = gr.Button("Stop at a checkpoint", variant="stop", min_width=140)
    findings = gr.HTML("", apply_default_css=False)
    status = gr.HTML(watcher.status, apply_default_css=False)
    curves = gr.HTML(watcher.curves, apply_default_css=False)
    masks = gr.HTML("", apply_default_css=False)
    timer = gr.Timer(_SECONDS_BETWEEN_LOOKS, active=False)

    def check_data(*values: str) -> str:
        with shown_errors():
            choice = Choice.parse(*values)
            return render("train_findings", report=run_check(choice), command=_shell(choice.check_command()))

    def start_training(*values: str) -> tuple[Any, ...]:
        with shown_errors():
            choice = Choice.parse(*values)
            watcher.process.start(choice.train_command(), Path(choice.out).expanduser())
        return watcher.status(), watcher.curves(), gr.Timer(active=True)

    def stop_training() -> str:
        with shown_errors():
            if watcher.process.state != "running":
                raise ConfigError("no training of this page runs")
            watcher.process.stop()
        return watcher.status()

    def look() -> tuple[Any, ...]:
        is_running = watcher.process.state == "running"  # asked first: what it has written since is shown then
        return watcher.status(), watcher.curves(), gr.Timer(active=is_running)

    hidden = {"show_progress": "hidden"}
    gr.on([field.change for field in fields], _commands, fields, commands, **hidden)
    check.click(check_data, fields, findings, show_progress_on=findings)
    start.click(start_training, fields, [status, curves, timer], show_progress_on=status)
    stop.click(stop_training, None, status, **hidden)
    timer.tick(look, None, [status, curves, timer], **hidden)
    timer.tick(watcher.masks, None, masks, **hidden)
    # Without triggers: when the page is opened, which shows a training that was started before.
    gr.on(None, look, None, [status, curves, timer], **hidden)
    gr.on(None, watcher.masks, None, masks, **hidden)
