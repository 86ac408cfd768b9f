"""Reproduction of tables by commands that can be run by hand; finished steps are skipped."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import tagseg
from tagseg.cli import app, main
from tagseg.predict import write_settings
from tagseg.reproduction.paper import Result
from tagseg.reproduction.runner import EvaluateStep, open_voc, reproductions, steps_for
from tests.data.small_datasets import write_voc
from tests.reproduction.fake_runs import write_packed_shapes
from tests.training.small_run import SETTINGS

CHANGES = [*SETTINGS, "training.epochs=2"]


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_packed_shapes(tmp_path_factory.mktemp("voc"))


@pytest.fixture(scope="module")
def runs(voc: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], str]:
    """Reproduce Table 2; return the folder of its runs, the commands, and the table."""
    out, commands = tmp_path_factory.mktemp("runs"), list[str]()
    return out, commands, tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=commands.append)


def test_table_is_reproduced(runs: tuple[Path, list[str], str]) -> None:
    out, commands, table = runs
    assert [shlex.split(command)[1] for command in commands] == ["train", *["evaluate"] * 2, "train", *["evaluate"] * 4]
    names = {file.name for file in (out / "resnet50").iterdir()}
    assert {"config.json", "metrics.jsonl", "model.safetensors", "pseudo.json", "tta-crf.json"} <= names
    assert "evaluation.json" not in names
    assert "Our runs: 6 val images. Our runs: 5 train images." in " ".join(table.split())
    row = next(line for line in table.splitlines() if line.startswith("| the method "))
    assert "64.7" in row
    assert " - " not in row


def test_finished_steps_are_skipped(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    out, first_commands, table = runs
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    skipped: list[str] = []
    assert tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=skipped.append) == table
    assert skipped == [f"# done: {command}" for command in first_commands]
    assert before == {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    (out / "resnet50" / "pseudo.json").unlink()
    rerun: list[str] = []
    tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=rerun.append)
    assert [command for command in rerun if not command.startswith("#")] == [
        c for c in first_commands if "pseudo.json" in c
    ][1:]


def test_unfinished_run_is_resumed(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    out, first_commands, table = runs
    model = out / "resnet50" / "model.safetensors"
    # As before the thresholds are tuned.
    write_settings(model, replace(tagseg.load(model).settings, thresholds_from="paper"))
    commands: list[str] = []
    assert tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=commands.append) == table
    assert [command for command in commands if not command.startswith("#")] == [first_commands[3]]
    assert tagseg.load(model).settings.thresholds_from == "tags"


def test_printed_command_gives_the_same_result(runs: tuple[Path, list[str], str]) -> None:
    _, commands, _ = runs
    evaluate, move = next(command for command in commands if "resnet50/tta.json" in command).split(" && ")
    result = CliRunner().invoke(app, shlex.split(evaluate)[1:])
    assert result.exit_code == 0, result.output
    _, source, target = shlex.split(move)
    first, second = (tagseg.Evaluation.from_json(Path(file).read_text()) for file in (source, target))
    assert first.mean_iou("true-tags") == second.mean_iou("true-tags")
    Path(source).unlink()
    train = next(command for command in commands if command.startswith("tagseg train"))
    result = CliRunner().invoke(app, shlex.split(train)[1:])
    assert result.exit_code == 0, result.output  # another configuration would be refused


def test_last_checkpoint_is_evaluated_beside_the_best(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    folder = runs[0] / "resnet50"
    step = EvaluateStep(folder, "last", open_voc(voc))
    step.run()
    result = CliRunner().invoke(app, shlex.split(step.command.split(" && ")[0])[1:])
    assert result.exit_code == 0, result.output
    step_result, command_result = (
        tagseg.Evaluation.from_json((folder / file).read_text()) for file in ("last.json", "evaluation.json")
    )
    assert step_result.model["name"] == "checkpoint"
    assert step_result.mean_iou("true-tags") == command_result.mean_iou("true-tags")
    (folder / "evaluation.json").unlink()


def test_run_with_other_settings_is_refused(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    with pytest.raises(ValueError, match=r"holds a run of another configuration \(training.lr is 0.01 there, 0.02"):
        tagseg.reproduce("table-2", voc, runs[0], changes=[*CHANGES, "training.lr=0.02"], on_command=lambda _: None)


def test_images_show_the_masks_of_a_run(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    message = tagseg.reproduce("images", voc, runs[0], changes=CHANGES, on_command=lambda _: None)
    assert message == f"images: {runs[0] / 'images.png'}"
    with Image.open(runs[0] / "images.png") as sheet:
        colors = sheet.convert("RGB").getcolors(1 << 16)
        assert sheet.width > sheet.height
    assert {(0, 0, 0), (128, 0, 0)} <= {color for _, color in colors or ()}  # background and first class of VOC


def test_students_learn_from_the_pseudo_labels_of_one_teacher(voc: Path, tmp_path: Path) -> None:
    results = [Result((run,), "single") for run in ("student-tinyvit", "student-mobilenetv2")]
    changes = [*SETTINGS, "training.epochs=2", "training.cache_features=false", "training.ema=0"]
    changes += ["pseudo_labels.teacher=network", "validation.fraction=0.2", "inference.size=48"]
    steps = list(steps_for(results, open_voc(voc), tmp_path, changes))
    words = [shlex.split(step.command)[1] for step in steps]
    assert words == ["train", "pseudo-labels", "train-masks", "evaluate", "train-masks", "evaluate"]
    assert f"tagseg train-masks {tmp_path}/dinov2/pseudo-labels --recipe student" in steps[2].command
    for step in steps[:4]:
        assert not step.done
        step.run()
        assert step.done


def test_dry_run_only_prints_commands(tmp_path: Path) -> None:
    folder = write_voc(tmp_path / "voc") / "VOCdevkit" / "VOC2012"
    runs, weights = tmp_path / "runs", "model.pretrained=weights/{backbone}.safetensors"
    arguments = ["supp-f", "--voc", str(folder), "--out", str(runs), "--dry-run", "--set", weights]
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    commands = result.output.splitlines()
    assert all(command.startswith(("tagseg train ", "tagseg evaluate ")) for command in commands)
    assert commands[0] == (
        f"tagseg train {folder} --split train_aug --val {folder} --val-split val --recipe vgg16 "
        f"--set model.pretrained=weights/vgg16.safetensors --out {runs}/vgg16"
    )
    assert any(f"{folder} --model {runs}/resnet50 --split val --tta --crf --threshold 0.1 && mv" in c for c in commands)
    assert not (tmp_path / "runs").exists()


def test_seeds_use_the_same_recipe(tmp_path: Path) -> None:
    folder, commands = write_voc(tmp_path / "voc") / "VOCdevkit" / "VOC2012", list[str]()
    tagseg.reproduce("table-1", folder, tmp_path / "runs", dry_run=True, on_command=commands.append)
    train_commands = [command for command in commands if command.startswith("tagseg train")]
    assert train_commands[1].endswith(f"--recipe resnet50 --set training.seed=1 --out {tmp_path}/runs/resnet50-seed-1")


def test_voc_archives_and_packed_tables_are_opened(voc: Path, tmp_path: Path) -> None:
    archives = open_voc(write_voc(tmp_path))
    assert [len(source.open()) for source in (archives.train_aug, archives.val, archives.train)] == [3, 2, 1]
    assert len(archives.train.open_masks()) == 1
    packed = open_voc(voc)
    assert (len(packed.val.open_masks()), len(packed.train.open_masks())) == (6, 5)


def test_tables_are_listed() -> None:
    output = CliRunner().invoke(app, ["reproduce"]).output
    assert [line.split()[0] for line in output.splitlines()] == list(reproductions())
    assert {"table-1", "table-2", "table-3", "table-4", "supp-f", "images"} <= set(reproductions())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-5", "--voc", "."], "unknown table 'table-5'; known: .*Did you mean 'table-"),
        (
            ["table-1", "--voc", "."],
            "is not VOC 2012; give VOCdevkit/VOC2012, or a folder with .* as (voc=|--voc)",
        ),
        (["table-1"], "name their folder with --voc"),
    ],
)
def test_wrong_arguments_give_one_line_errors(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tagseg", "reproduce", *arguments])
    with pytest.raises(SystemExit, match=message) as error:
        main()
    assert "\n" not in str(error.value)
