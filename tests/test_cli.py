"""The command line: results, one-line errors, and signals to real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import tagseg
from tagseg.cli import app, main
from tagseg.training.recipe import describe_settings
from tests.photos import train_on_photos, write_photos
from tests.training.small_run import SETTINGS

SET_OPTIONS = [argument for setting in SETTINGS for argument in ("--set", setting)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def trained(photos: Path) -> Path:
    return train_on_photos(photos)


def data_arguments(photos: Path) -> list[str]:
    return [str(photos / "photos.csv"), "--images", str(photos / "images")]


def ground_truth_arguments(photos: Path) -> list[str]:
    return [*data_arguments(photos), "--masks", str(photos / "ground truth")]


def error_message(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command that must fail, and return its one-line message."""
    monkeypatch.setattr(sys, "argv", ["tagseg", *arguments])
    with pytest.raises(SystemExit) as error:
        main()
    assert isinstance(error.value.code, str)
    assert "\n" not in error.value.code
    return error.value.code


@pytest.mark.parametrize(
    "command",
    [
        "check",
        "train",
        "train-masks",
        "export-masks",
        "pseudo-labels",
        "predict",
        "evaluate",
        "export",
        "report",
        "recipes",
        "bench",
        "reproduce",
        "app",
        "demo",
        "doctor",
    ],
)
def test_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0
    assert f"tagseg {command}" in result.output.split("Example:")[1]


def test_train_predict_evaluate_report(photos: Path, trained: Path, tmp_path: Path) -> None:
    assert {"config.json", "metrics.jsonl", "model.safetensors", "validation.txt"} <= {
        p.name for p in trained.iterdir()
    }
    runner = CliRunner()
    result = runner.invoke(app, ["predict", str(photos / "images"), "-m", str(trained), "-o", str(tmp_path / "masks")])
    assert result.exit_code == 0, result.output
    index = json.loads((tmp_path / "masks" / "predictions.json").read_text())
    assert len(index["images"]) == 40
    mask = Image.open(tmp_path / "masks" / index["images"][0]["files"]["mask"])
    assert (mask.mode, mask.size) == ("P", (48, 48))
    result = runner.invoke(
        app, ["evaluate", *ground_truth_arguments(photos), "-m", str(trained), "-o", str(tmp_path / "evaluation")]
    )
    assert result.exit_code == 0, result.output
    evaluation = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert set(evaluation["protocols"]) == {"predicted-tags", "true-tags"}
    assert evaluation["caveat"] == ""
    result = runner.invoke(app, ["report", str(trained), "--out", str(tmp_path / "page.html"), "--count", "2"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_bench_evaluate_times_with_and_without_crf(photos: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("".join((photos / "photos.csv").open().readlines()[:3]))
    data = [
        "--data",
        str(tmp_path / "few.csv"),
        "--images",
        str(photos / "images"),
        "--masks",
        str(photos / "ground truth"),
    ]
    result = CliRunner().invoke(app, ["bench", "evaluate", "--model", str(trained), *data, "--device", "cpu", "--json"])
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)
    (table,) = report["measurements"]["tables"]
    assert [row["name"] for row in table["rows"]] == ["without CRF", "with CRF"]
    assert all(row["images"] == 2 and len(row["rounds"]) == 5 for row in table["rows"])


def test_tuning_on_masks_is_marked_in_the_output(photos: Path, trained: Path) -> None:
    result = CliRunner().invoke(
        app, ["evaluate", *ground_truth_arguments(photos), "-m", str(trained), "--tune-on-masks"]
    )
    assert "TUNED ON MASKS" in result.output
    assert json.loads((trained / "evaluation.json").read_text())["settings"]["thresholds_from"] == "masks"
    (trained / "evaluation.json").unlink()


def test_thresholds_are_tuned_on_tags(photos: Path, trained: Path) -> None:
    model = tagseg.load(trained)
    assert model.settings.thresholds_from == "tags"
    assert isinstance(model.settings.thresholds, tuple)
    result = CliRunner().invoke(
        app, ["evaluate", *ground_truth_arguments(photos), "-m", str(trained), "--threshold", "0.1"]
    )
    assert "thresholds 0.1 (the paper's)" in " ".join(result.output.split())
    (trained / "evaluation.json").unlink()


def test_chosen_classes_are_those_of_the_run_of_its_resumption_and_of_its_report(photos: Path, tmp_path: Path) -> None:
    data = [*ground_truth_arguments(photos), "--classes", "round=disc|ring,star"]
    train = ["train", *data, "-o", str(tmp_path / "run"), "--workers", "0", *SET_OPTIONS]
    for arguments in (train, train, ["report", str(tmp_path / "run"), "--count", "2"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert tagseg.load(tmp_path / "run").classes == ("round", "star")
    result = CliRunner().invoke(app, ["evaluate", *data, "-m", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, [*train, "--classes", "star,disc"])
    assert "holds a run of another configuration" in str(result.exception)


def test_check_prints_a_table_or_json_and_fails_on_problems(photos: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["check", *data_arguments(photos)])
    assert result.exit_code == 0
    assert "fit for training, with " in result.output.splitlines()[-1]
    assert json.loads(runner.invoke(app, ["check", *data_arguments(photos), "--json"]).output)["image_count"] == 40
    (tmp_path / "bad.csv").write_text("image,labels\nnone.png,disc\n")
    result = runner.invoke(app, ["check", str(tmp_path / "bad.csv")])
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith("not fit for training: ")


def test_check_can_fail_on_warnings_and_takes_the_options_of_train(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "val.csv").write_text("".join((photos / "photos.csv").open().readlines()[:11]))
    names = ["--val", str(tmp_path / "val.csv"), "--val-images", str(photos / "images")]
    options = [*names, "--recipe", "shapes", "--set", "transforms.crop=32", "--json"]
    result = CliRunner().invoke(app, ["check", *data_arguments(photos), *options])
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert (report["crop"], report["verdict"]) == (32, "fit with warnings")
    assert len(report["validation_duplicates"]) == 10
    assert CliRunner().invoke(app, ["check", *data_arguments(photos), *options, "--strict"]).exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_run_resumes(photos: Path, tmp_path: Path, signal_number: int) -> None:
    """After a signal, the same command resumes and ends with the weights of an uninterrupted run."""
    out = tmp_path / "run"
    settings = [*SET_OPTIONS, "--set", "training.epochs=6", "--set", "validation.every=6"]
    command = [sys.executable, "-m", "tagseg", "train", *data_arguments(photos), "--out", str(out), "--workers", "1"]
    command += [*settings, "--checkpoint-steps", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (out / "checkpoint.safetensors").exists():
            assert time.monotonic() < deadline, "no checkpoint was written"
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.02)
        os.killpg(process.pid, signal_number)
        _, stderr = process.communicate(timeout=60)
    if signal_number != signal.SIGKILL:
        assert re.search(r"tagseg: stopped at step \d+ of \d+; run the same command again to resume", stderr)
        assert "Stopping after this " in stderr
        assert "Traceback" not in stderr
        assert process.returncode == 130
    resumed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert "Resuming from step" in resumed.stderr
    uninterrupted = [
        *command[: command.index("--out") + 1],
        str(tmp_path / "uninterrupted"),
        *command[command.index("--workers") :],
    ]
    if signal_number == signal.SIGKILL:
        subprocess.run(uninterrupted, capture_output=True, env=environment, timeout=180, check=True)
        first, second = (tagseg.load_model(tmp_path / name / "model.safetensors") for name in ("run", "uninterrupted"))
        assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())


@pytest.mark.slow
def test_second_interrupt_ends_a_run_at_once(photos: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tagseg", "train", *data_arguments(photos), "-o", str(tmp_path / "run")]
    command += [*SET_OPTIONS, "--set", "transforms.crop=448", "--checkpoint-steps", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "an epoch)" in line or line.startswith("Stopping after"):  # before the first step, and within it
                os.killpg(process.pid, signal.SIGINT)
    assert lines[-1] == "tagseg: stopped at once; run the same command again to resume\n"
    assert "Traceback" not in "".join(lines)
    assert process.returncode == 130
    assert not list((tmp_path / "run").glob("*.part"))


def test_training_errors_are_one_line(
    photos: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*arguments: str, out: Path = tmp_path / "run") -> str:
        return error_message(["train", *SET_OPTIONS, *arguments, "--out", str(out), "--workers", "0"], monkeypatch)

    assert "nowhere.csv" in train(str(tmp_path / "nowhere.csv"))
    (tmp_path / "empty").mkdir()
    assert "empty" in train(str(tmp_path / "empty"))
    assert "holds a run of another configuration (training.lr is 0.01 there, 0.5 here)" in train(
        *data_arguments(photos), "--set", "training.lr=0.5", out=trained
    )
    assert "exists and is not a run folder" in train(*data_arguments(photos), out=photos)
    assert "unknown recipe 'resnet5'" in train(*data_arguments(photos), "--recipe", "resnet5")
    assert "unknown setting 'model.gat'" in train(*data_arguments(photos), "--set", "model.gat=none")
    (tmp_path / "one.csv").write_text("image,labels\n" + "".join(f"{i}.png,disc\n" for i in range(3)))
    for i in range(3):
        Image.new("RGB", (48, 48), (i, 0, 0)).save(tmp_path / f"{i}.png")
    assert "every image is tagged 'disc'" in train(str(tmp_path / "one.csv"))


def test_unreadable_images_stop_training_unless_skipped(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (photos / "images" / "broken.png").write_bytes(b"not an image")
    table = photos / "broken.csv"
    table.write_text((photos / "photos.csv").read_text() + "broken.png,disc\ngone.png,ring\n")
    arguments = ["train", str(table), "--images", str(photos / "images"), *SET_OPTIONS, "--workers", "0"]
    assert "gone.png" in error_message([*arguments, "--out", str(tmp_path / "run")], monkeypatch)
    table.write_text((photos / "photos.csv").read_text() + "broken.png,disc\n")
    message = error_message([*arguments, "--out", str(tmp_path / "run")], monkeypatch)
    assert "1 of 41 images cannot be read; the first: " in message
    assert "--skip-bad" in message
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run"), "--skip-bad"])
    assert result.exit_code == 0, result.output
    assert "1 of 41 images cannot be read and are left out; the first: " in caplog.text
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["skipped"] == 1
    (photos / "images" / "broken.png").unlink()


def test_training_needs_disk_space_for_checkpoints(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 2**20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    message = error_message(
        ["train", *data_arguments(photos), *SET_OPTIONS, "--out", str(tmp_path / "run")], monkeypatch
    )
    assert "1 MiB free, and the checkpoints of this network need" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "nowhere.jpg"], "nowhere.jpg: does not exist; name an image, a folder, a zip, a URL or a pattern"),
        (["predict", "~nouser/a.png"], "~nouser/a.png: does not exist"),
        (["predict", __file__, "-m", "~nouser/photos"], "~nouser/photos: does not exist"),
        (
            ["predict", __file__, "-m", "nowhere"],
            "nowhere: does not exist; name a run folder, a model file, or default",
        ),
        (["export", __file__], "unknown suffix of an export '.py'; known: .onnx, .pt2"),
        (["export", "model.onnx", "-m", "nowhere"], "nowhere: does not exist; name a run folder"),
        (["export", "model.onnx", "--license", "mit"], "--license is for the model card of a folder"),
        (["report", "nowhere"], "nowhere: does not exist; name the folder that tagseg train wrote"),
        (["evaluate", "shapes:2", "-m", "nowhere"], "nowhere: does not exist"),
        (["evaluate", "shapes:2"], "cross, but the model has aeroplane"),
        (["check", "nowhere.csv"], "nowhere.csv"),
        (["check", "shapes", "--val", "nowhere.csv"], "nowhere.csv"),
        (["check", "shapes", "--recipe", "shape"], "unknown recipe 'shape'"),
        (["check", "shapes:9", "--classes", "disk"], "unknown class 'disk'; known: cross, disc, "),
        (["check", "shapes:9", "--classes", ""], "no class is chosen; name those to keep with --classes, such as"),
        (["train", "shapes:9", "-o", "x", "--val-classes", "disc"], "belong to validation data; name it with --val"),
        (["export-masks", "nowhere", "--format", "coco", "-o", "x"], "nowhere: does not exist"),
        (["export-masks", "shapes:9", "--format", "voc", "-o", "x"], "unknown format 'voc'; known: coco, cvat, hf"),
        (
            ["export-masks", "shapes:9", "--format", "coco", "-o", __file__],
            "is not overwritten; choose another place with -",
        ),
        (["recipes", "resnet"], "unknown recipe 'resnet'"),
        (["bench", "evaluate", "--model", "nowhere", "--data", "shapes:2"], "nowhere: does not exist"),
        (["bench", "evaluate", "--model", "default"], "needs a model and images with masks; add --model and --data"),
        (["bench", "evaluate", "--model", "default", "--images", "images"], "belong to --data"),
        (
            ["bench", "evaluate", "--model", "default", "--data", "shapes:2", "--threshold", "7"],
            "scores from 0 to 1, got 7",
        ),
        (["bench", "sizes", "--model", "default"], "the benchmark sizes needs a model and images with masks"),
        (["bench", "pamr", "--size", "300"], "a size is for the benchmark sizes"),
        (["bench", "pamr", "--limit", "3"], "--limit belong to --data of the benchmarks"),
        (["predict", "ftp://example.org/a.jpg"], "ftp://example.org/a.jpg: is neither http nor https"),
        (["predict", __file__, "--tags", "nowhere.csv"], "nowhere.csv: does not exist; name a CSV, TSV or JSON lines"),
        (["predict", __file__, "--shard", "5/4"], "--shard 5/4: is not a part of the images; write for example"),
        (["predict", __file__, "--size", "abc"], "--size abc: is neither native nor a number of pixels"),
        (["predict", __file__, "--size", "0"], "size must be 'native' or a number of pixels from 32"),
        (["evaluate", "shapes:2", "--size", "-5"], "--size -5: is neither native nor a number of pixels"),
        (["bench", "pamr", "--device", "gpu"], "unknown device 'gpu'; known: auto, cpu, cuda"),
        (["bench", "pamr", "--threshold", "0.1"], "are for the benchmarks evaluate and sizes; name one"),
    ],
)
def test_wrong_arguments_give_one_line_errors(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert message in error_message(arguments, monkeypatch)


def test_missing_and_damaged_images(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.jpg").write_bytes(b"no")
    out = ["-o", str(tmp_path / "masks")]
    assert "none.jpg" in error_message(["predict", str(tmp_path / "none.jpg"), "-m", str(trained), *out], monkeypatch)
    assert "empty" in error_message(["predict", str(tmp_path / "empty"), "-m", str(trained), *out], monkeypatch)
    assert "broken.jpg" in error_message(
        ["predict", str(tmp_path / "broken.jpg"), "-m", str(trained), *out], monkeypatch
    )
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "broken.jpg"), "-m", str(trained), *out, "--skip-bad"])
    assert result.exit_code == 0
    assert "Skipped: " in result.output


def test_predictions_of_earlier_calls_and_parts(
    photos: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, out = photos / "images", tmp_path / "masks"
    command = ["predict", str(images), "-m", str(trained), "-o", str(out)]
    runner = CliRunner()
    assert runner.invoke(app, [*command, "--shard", "1/2"]).exit_code == 0
    assert "exists; keep it by --skip-existing, replace it by --overwrite" in error_message(command, monkeypatch)
    (images / "layers.psd").write_bytes(b"")
    result = runner.invoke(app, [*command, "--skip-existing"])
    (images / "layers.psd").unlink()
    assert result.exit_code == 0, result.output
    assert "Left out: 1 file" in result.stderr
    assert "40 images: masks, overlays and predictions.json are in" in result.stdout
    assert "(crf is false there, true here); choose another folder with --out" in error_message(
        [*command, "--skip-existing", "--crf"], monkeypatch
    )
    tagged = [*command[:-1], str(tmp_path / "tagged"), "--tags", str(photos / "photos.csv")]
    result = runner.invoke(app, tagged)
    assert result.exit_code == 0, result.output
    entries = json.loads((tmp_path / "tagged" / "predictions.json").read_text())["images"]
    rows = (line.split(",") for line in (photos / "photos.csv").read_text().splitlines()[1:])
    assert {entry["name"]: set(entry["tags"]) for entry in entries} == {
        name.removesuffix(".png"): set(filter(None, tags.split(";"))) for name, tags in rows
    }


@pytest.mark.slow
def test_interrupted_prediction_keeps_what_is_done(photos: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "masks"
    command = [sys.executable, "-m", "tagseg", "predict", str(photos / "images"), "-m", str(trained), "-o", str(out)]
    command += ["--tta", "--size", "448", "--batch-size", "1", "--no-optimize"]  # seconds for all images
    # A test suite in the background of a shell ignores SIGINT, and so would its children.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed) as process:
        while not list(out.glob("*_mask.png")):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert "tagseg: stopped; continue by the same command with --skip-existing" in stderr
    assert process.returncode == 130
    stopped = json.loads((out / "predictions.json").read_text())
    assert 0 < len(stopped["images"]) < 40
    assert not stopped["complete"]


def test_recipes_are_listed_and_printed(tmp_path: Path) -> None:
    runner = CliRunner()
    listing, full_listing = (runner.invoke(app, ["recipes", *options]).output for options in ([], ["--all"]))
    assert [line.split()[0] for line in listing.splitlines()] == list(tagseg.recipes())
    assert "default" in tagseg.recipes()
    assert "resnet50" not in tagseg.recipes()
    assert [line.split()[0] for line in full_listing.splitlines()] == list(tagseg.recipes(all=True))
    assert "resnet50" in tagseg.recipes(all=True)
    (tmp_path / "mine.toml").write_text(runner.invoke(app, ["recipes", "vgg16"]).output)
    assert tagseg.Recipe.load(tmp_path / "mine.toml") == tagseg.Recipe.load("vgg16")
    assert tagseg.recipes()["wideresnet38"].endswith("--set model.pretrained=PATH")
    settings = runner.invoke(app, ["recipes", "--settings"]).output
    assert re.search(r"training.epochs +20 +Number of epochs", settings)
    assert all(description for _, description in describe_settings().values())


def test_help_does_not_import_torch() -> None:
    code = "import sys, tagseg.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_second_stage(photos: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pseudo labels, a network trained on them, and the errors of both commands."""
    pseudo, run = str(tmp_path / "pseudo"), str(tmp_path / "run")
    command = ["pseudo-labels", *data_arguments(photos), "-m", str(trained), "-o", pseudo, "--ignore-below", "0.3"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "Coverage of the pseudo labels" in result.output
    assert "background" in CliRunner().invoke(app, [*command, "--json"]).output
    assert "(crf is false there, true here); choose another folder with --out" in error_message(
        [*command, "--crf"], monkeypatch
    )
    train = ["train-masks", pseudo, "-o", run, *SET_OPTIONS, "--set", "training.warmup_steps=0"]
    result = CliRunner().invoke(app, train)
    assert result.exit_code == 0, result.output
    assert "Trained: " in result.output
    assert tagseg.load(run).description["method"] == "supervised"
    assert "nowhere: does not exist" in error_message(["train-masks", "nowhere", "-o", run], monkeypatch)
    assert "no masks were found; name their folder or zip with --masks" in error_message(
        ["train-masks", *data_arguments(photos), "-o", str(tmp_path / "other")], monkeypatch
    )


def test_second_interrupt_while_the_command_exits_is_ignored() -> None:
    code = (
        "import atexit, os, signal; from tagseg.cli import _app; from tagseg.errors import Interrupted\n"
        "def stop(): raise Interrupted('stopped')\n"
        "_app.app = stop\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "_app.main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "tagseg: stopped\n")
