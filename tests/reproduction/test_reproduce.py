"""A table is redone by commands that a person could type, and what is done is not done again."""

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
from tagseg.reproduction.folder import open_voc
from tagseg.reproduction.run import reproductions
from tagseg.reproduction.steps import Measuring
from tests.data.writing import write_voc
from tests.reproduction.made import write_packed_shapes
from tests.training.small import SETTINGS

CHANGES = [*SETTINGS, "training.epochs=2"]


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_packed_shapes(tmp_path_factory.mktemp("voc"))


@pytest.fixture(scope="module")
def runs(voc: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], str]:
    """The folder of the runs of Table 2, the commands as they were named, and the table."""
    out, said = tmp_path_factory.mktemp("runs"), list[str]()
    return out, said, tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=said.append)


def test_a_table_is_redone(runs: tuple[Path, list[str], str]) -> None:
    out, said, table = runs
    assert [shlex.split(command)[1] for command in said] == ["train", *["evaluate"] * 2, "train", *["evaluate"] * 4]
    names = {file.name for file in (out / "resnet50").iterdir()}
    assert {"config.json", "metrics.jsonl", "model.safetensors", "pseudo.json", "tta-crf.json"} <= names
    assert "evaluation.json" not in names
    assert "Ours were measured on 6 val images. Ours were measured on 5 train images." in " ".join(table.split())
    row = next(line for line in table.splitlines() if line.startswith("| the method "))
    assert "64.7" in row
    assert " - " not in row


def test_what_is_done_is_not_done_again(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    out, first, table = runs
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    again: list[str] = []
    assert tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=again.append) == table
    assert again == [f"# done: {command}" for command in first]
    assert before == {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    (out / "resnet50" / "pseudo.json").unlink()
    some: list[str] = []
    tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=some.append)
    assert [command for command in some if not command.startswith("#")] == [c for c in first if "pseudo.json" in c][1:]


def test_a_run_that_was_stopped_before_its_end_goes_on(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    out, first, table = runs
    model = out / "resnet50" / "model.safetensors"
    write_settings(model, replace(tagseg.load(model).settings, thresholds_from="paper"))  # as after an epoch
    said: list[str] = []
    assert tagseg.reproduce("table-2", voc, out, changes=CHANGES, on_command=said.append) == table
    assert [command for command in said if not command.startswith("#")] == [first[3]]
    assert tagseg.load(model).settings.thresholds_from == "tags"


def test_a_named_command_does_what_was_done(runs: tuple[Path, list[str], str]) -> None:
    _, said, _ = runs
    evaluate, move = next(command for command in said if "resnet50/tta.json" in command).split(" && ")
    done = CliRunner().invoke(app, shlex.split(evaluate)[1:])
    assert done.exit_code == 0, done.output
    _, source, target = shlex.split(move)
    first, second = (tagseg.Evaluation.from_json(Path(file).read_text()) for file in (source, target))
    assert first.mean_iou("true-tags") == second.mean_iou("true-tags")
    Path(source).unlink()
    train = next(command for command in said if command.startswith("tagseg train"))
    done = CliRunner().invoke(app, shlex.split(train)[1:])
    assert done.exit_code == 0, done.output  # a run of another configuration would be refused


def test_the_last_epoch_is_measured_beside_the_chosen_one(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    folder = runs[0] / "resnet50"
    step = Measuring(folder, "last", open_voc(voc))
    step.do()
    done = CliRunner().invoke(app, shlex.split(step.command.split(" && ")[0])[1:])
    assert done.exit_code == 0, done.output
    by_step, by_command = (
        tagseg.Evaluation.from_json((folder / file).read_text()) for file in ("last.json", "evaluation.json")
    )
    assert by_step.model["name"] == "checkpoint"
    assert by_step.mean_iou("true-tags") == by_command.mean_iou("true-tags")
    (folder / "evaluation.json").unlink()


def test_another_recipe_does_not_pass_for_a_run_that_is_there(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    with pytest.raises(ValueError, match=r"holds a run of another configuration \(training.lr is 0.01 there, 0.02"):
        tagseg.reproduce("table-2", voc, runs[0], changes=[*CHANGES, "training.lr=0.02"], on_command=lambda _: None)


def test_images_of_a_run(voc: Path, runs: tuple[Path, list[str], str]) -> None:
    said = tagseg.reproduce("images", voc, runs[0], changes=CHANGES, on_command=lambda _: None)
    assert said == f"images: {runs[0] / 'images.png'}"
    with Image.open(runs[0] / "images.png") as sheet:
        colours = sheet.convert("RGB").getcolors(1 << 16)
        assert sheet.width > sheet.height
    assert {(0, 0, 0), (128, 0, 0)} <= {colour for _, colour in colours or ()}  # the background, and VOC's first class


def test_a_dry_run_names_commands_alone(tmp_path: Path) -> None:
    folder = write_voc(tmp_path / "voc") / "VOCdevkit" / "VOC2012"
    runs, weights = tmp_path / "runs", "model.pretrained=weights/{backbone}.safetensors"
    arguments = ["supp-f", "--voc", str(folder), "--out", str(runs), "--dry-run", "--set", weights]
    done = CliRunner().invoke(app, ["reproduce", *arguments])
    commands = done.output.splitlines()
    assert all(command.startswith(("tagseg train ", "tagseg evaluate ")) for command in commands)
    assert commands[0] == (
        f"tagseg train {folder} --split train_aug --val {folder} --val-split val --recipe vgg16 "
        f"--set model.pretrained=weights/vgg16.safetensors --out {runs}/vgg16"
    )
    assert any(
        f"{tmp_path}/runs/resnet50 {folder} --split val --tta --crf --threshold 0.1 && mv" in c for c in commands
    )
    assert not (tmp_path / "runs").exists()


def test_both_kinds_of_folders_give_the_same_parts(voc: Path, tmp_path: Path) -> None:
    archives = open_voc(write_voc(tmp_path))
    assert [len(source.open()) for source in (archives.train_aug, archives.val, archives.train)] == [3, 2, 1]
    assert len(archives.train.open_masks()) == 1
    packed = open_voc(voc)
    assert (len(packed.val.open_masks()), len(packed.train.open_masks())) == (6, 5)


def test_the_tables_are_listed() -> None:
    shown = CliRunner().invoke(app, ["reproduce"]).output
    assert [line.split()[0] for line in shown.splitlines()] == list(reproductions())
    assert {"table-1", "table-2", "table-3", "table-4", "supp-f", "images"} <= set(reproductions())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table-5", "--voc", "."], "unknown table 'table-5'; known: .*Did you mean 'table-"),
        (["table-1", "--voc", "nowhere"], "nowhere: is not VOC 2012; name VOCdevkit/VOC2012, or a folder with"),
        (["table-1"], "name their folder with --voc"),
    ],
)
def test_errors_are_one_line(arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tagseg", "reproduce", *arguments])
    with pytest.raises(SystemExit, match=words) as stopped:
        main()
    assert "\n" not in str(stopped.value)
