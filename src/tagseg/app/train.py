"""Tab Train: check a dataset; start, watch, stop and resume a training by the commands that a person would type."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

import tagseg
from tagseg.app.context import Context
from tagseg.app.markup import notice, render, shown_errors
from tagseg.app.training_process import shell_line
from tagseg.app.training_view import Watcher
from tagseg.data.check_report import CheckReport
from tagseg.errors import ConfigError

NOT_LOCAL = (
    "Training reads tables and images from this machine's disk and writes to it, so it can be started only from a page "
    "that is served to this machine alone. Open it there, without --host, or type tagseg train in a terminal."
)
_SECONDS_BETWEEN_LOOKS = 2.0


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


def _commands(*values: str) -> str:
    """HTML of both commands; what is missing for them is said in their place."""
    choice = Choice.parse(*values)
    try:
        commands = [shell_line(choice.check_command()), shell_line(choice.train_command())]
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
    fields: list[Any] = [data, images, out, recipe, changes]
    commands = gr.HTML(_commands("", "", "", "default", ""), apply_default_css=False)
    with gr.Row():
        check = gr.Button("Check the data", min_width=140)
        start = gr.Button("Start or resume", variant="primary", min_width=140)
        stop = gr.Button("Stop at a checkpoint", min_width=140)
    findings = gr.HTML("", apply_default_css=False)
    status = gr.HTML("", apply_default_css=False)
    curves = gr.HTML("", apply_default_css=False)
    masks = gr.HTML("", apply_default_css=False)
    timer = gr.Timer(_SECONDS_BETWEEN_LOOKS, active=False)

    def check_data(*values: str) -> str:
        with shown_errors():
            choice = Choice.parse(*values)
            return render("train_findings", report=run_check(choice), command=shell_line(choice.check_command()))

    def start_training(*values: str) -> tuple[Any, ...]:
        with shown_errors():
            choice = Choice.parse(*values)
            watcher.process.start(choice.train_command(), Path(choice.out).expanduser())
        return watcher.status(), watcher.curves(), gr.Timer(active=True)

    def stop_training() -> str:
        with shown_errors():
            if not watcher.is_running:
                raise ConfigError("no training of this page runs")
            watcher.process.stop()
        return watcher.status()

    def look() -> tuple[Any, ...]:
        is_running = watcher.is_running  # asked first: what it has written since is shown then
        return watcher.status(), watcher.curves(), gr.Timer(active=is_running)

    hidden: dict[str, Any] = {"show_progress": "hidden"}
    gr.on([field.change for field in fields], _commands, fields, commands, **hidden)
    check.click(check_data, fields, findings, show_progress_on=findings)
    start.click(start_training, fields, [status, curves, timer], show_progress_on=status)
    stop.click(stop_training, None, status, **hidden)
    timer.tick(look, None, [status, curves, timer], **hidden)
    timer.tick(watcher.masks, None, masks, **hidden)
    gr.on(None, look, None, [status, curves, timer], **hidden)  # when the page is opened
    gr.on(None, watcher.masks, None, masks, **hidden)
