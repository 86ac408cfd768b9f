"""The tab Train runs the commands that it shows, and only where the page is served to this machine alone."""

import time
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest

from tagseg.app.context import Context
from tagseg.app.train import Choice, _commands, _recipes, build, run_check
from tagseg.app.training_process import TrainingProcess
from tagseg.app.training_view import Watcher
from tagseg.errors import ConfigError
from tests.app.conftest import serve


def test_commands_are_those_of_the_command_line() -> None:
    choice = Choice.parse(" my photos.csv ", "photos/", "runs/a", "laptop", "training.epochs=5\ntraining.lr=0.01 ")
    options = ["--recipe", "laptop", "--set", "training.epochs=5", "--set", "training.lr=0.01"]
    assert choice.check_command() == ["check", "my photos.csv", "--images", "photos/", *options]
    assert choice.train_command() == ["train", "my photos.csv", "--out", "runs/a", "--images", "photos/", *options]
    shown = _commands(" my photos.csv ", "photos/", "runs/a", "laptop", "")
    assert "tagseg train &#39;my photos.csv&#39; --out runs/a --images photos/ --recipe laptop" in shown


@pytest.mark.parametrize(
    ("data", "out", "message"),
    [("", "runs/a", "the data is missing"), ("a.csv", "", "folder of the run"), ("--help", "runs/a", "write ./--help")],
)
def test_what_is_missing_is_said(data: str, out: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Choice.parse(data, "", out, "default", "").train_command()


def test_recipes_are_those_that_learn_from_tags() -> None:
    names = [name for _, name in _recipes()]
    assert "default" in names
    assert "student" not in names


def test_only_pages_of_this_machine_train(run_context: Context) -> None:
    with gr.Blocks() as page:
        build(replace(run_context, is_local=False))
    config = str(page.get_config_file())
    assert "can be started only from a page that is served to this machine alone" in config
    assert "Start or resume" not in config


def test_an_error_of_the_command_is_shown(tmp_path: Path, run_context: Context) -> None:
    process = TrainingProcess()
    process.start(["train", str(tmp_path / "none.csv"), "--out", str(tmp_path / "run")], tmp_path / "run")
    process.wait(60)
    assert process.state == "failed"
    assert "none.csv: does not exist" in process.output
    watcher = Watcher(replace(run_context, training=process))
    assert "The command has failed" in watcher.status()
    assert "none.csv: does not exist" in watcher.status()
    assert watcher.curves() == watcher.masks() == ""


def test_a_check_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    choice = Choice.parse(str(tmp_path / "none.csv"), "", "", "default", "")
    with pytest.raises(ConfigError, match=r"none.csv: does not exist; name a table"):
        run_check(choice)


def test_one_training_at_a_time(tmp_path: Path) -> None:
    process = TrainingProcess()
    process.start(["--version"], tmp_path)
    with pytest.raises(ConfigError, match="stop it before"):
        process.start(["--version"], tmp_path)
    process.wait(60)
    assert process.state == "finished"
    process.stop()


def test_a_run_is_watched(run: Path, run_context: Context) -> None:
    process = TrainingProcess()
    process.run = run
    watcher = Watcher(replace(run_context, training=process))
    assert "Training loss" in watcher.curves()
    assert watcher.curves() is watcher.curves()
    masks = watcher.masks()
    assert masks.count("Ground truth") == 4
    assert watcher.masks() is masks


@pytest.mark.slow
def test_the_end_of_the_page_stops_a_training_at_a_checkpoint(run_context: Context, tmp_path: Path) -> None:
    process, out = TrainingProcess(), tmp_path / "run"
    with serve(replace(run_context, training=process), tmp_path / "gradio"):
        choice = Choice.parse("shapes:40", "", str(out), "shapes", "training.epochs=200 model.width=16")
        process.start(choice.train_command(), out)
        deadline = time.monotonic() + 120
        while not (out / "metrics.jsonl").is_file() and time.monotonic() < deadline:
            time.sleep(0.1)
    process.wait(60)
    assert process.state == "stopped"
    assert "run the same command again to resume" in process.output
    assert (out / "checkpoint.safetensors").is_file()
