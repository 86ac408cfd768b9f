"""The command line as a person uses it: real processes for what only a process can show, one line for every error."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import tagseg
from tagseg.cli import app, main
from tagseg.data import shapes, shapes_masks
from tagseg.training.logging import read_metrics
from tagseg.training.recipe import describe_settings
from tests.training.small_run import SETTINGS, small_recipe

CHANGES = [argument for setting in SETTINGS for argument in ("--set", setting)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tagged images: photos.csv, images/, and apart from them ground truth/, with masks."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "images").mkdir()
    (folder / "ground truth").mkdir()
    data, ground_truth = shapes(40, size=48), shapes_masks(40, size=48)
    # A table's classes are in alphabetical order, and so are its masks' values.
    value = np.array([0, *(1 + sorted(data.classes).index(name) for name in data.classes)], np.uint8)
    rows = ["image,labels"]
    for index, name in enumerate(data.image_ids):
        Image.fromarray(data[index][0].permute(1, 2, 0).numpy()).save(folder / "images" / f"{name}.png")
        Image.fromarray(value[ground_truth[name]]).save(folder / "ground truth" / f"{name}.png")
        tags = [tag for tag, has in zip(data.classes, data.labels[index], strict=True) if has]
        rows.append(f"{name}.png,{';'.join(tags)}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(photos: Path) -> Path:
    out = photos / "runs" / "first"
    tagseg.train(source(photos), out, recipe=small_recipe(), workers=0)
    return out


def source(photos: Path) -> tagseg.DataSource:
    return tagseg.DataSource(str(photos / "photos.csv"), (str(photos / "images"),))


def data_arguments(photos: Path) -> list[str]:
    return [str(photos / "photos.csv"), "--images", str(photos / "images")]


def ground_truth_arguments(photos: Path) -> list[str]:
    return [*data_arguments(photos), "--masks", str(photos / "ground truth")]


def fails(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command that has to fail; what it says, which is one line."""
    monkeypatch.setattr(sys, "argv", ["tagseg", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert isinstance(stopped.value.code, str)
    assert "\n" not in stopped.value.code
    return stopped.value.code


@pytest.mark.parametrize(
    "command", ["check", "train", "predict", "evaluate", "report", "recipes", "bench", "reproduce", "demo"]
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
    done = runner.invoke(app, ["predict", str(photos / "images"), "-m", str(trained), "-o", str(tmp_path / "masks")])
    assert done.exit_code == 0, done.output
    index = json.loads((tmp_path / "masks" / "predictions.json").read_text())
    assert len(index["images"]) == 40
    mask = Image.open(tmp_path / "masks" / index["images"][0]["files"]["mask"])
    assert (mask.mode, mask.size) == ("P", (48, 48))
    done = runner.invoke(
        app, ["evaluate", *ground_truth_arguments(photos), "-m", str(trained), "-o", str(tmp_path / "numbers")]
    )
    assert done.exit_code == 0, done.output
    numbers = json.loads((tmp_path / "numbers" / "evaluation.json").read_text())
    assert set(numbers["protocols"]) == {"predicted-tags", "true-tags"}
    assert numbers["caveat"] == ""
    done = runner.invoke(app, ["report", str(trained), "--out", str(tmp_path / "page.html"), "--count", "2"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_a_users_model_and_images_are_timed_without_and_with_crf(photos: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("".join((photos / "photos.csv").open().readlines()[:3]))
    data = [
        "--data",
        str(tmp_path / "few.csv"),
        "--images",
        str(photos / "images"),
        "--masks",
        str(photos / "ground truth"),
    ]
    done = CliRunner().invoke(app, ["bench", "evaluate", "--model", str(trained), *data, "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    (table,) = report["measurements"]["tables"]
    assert [row["name"] for row in table["rows"]] == ["without CRF", "with CRF"]
    assert all(row["images"] == 2 and len(row["rounds"]) == 5 for row in table["rows"])


def test_tuning_on_masks_says_so(photos: Path, trained: Path) -> None:
    done = CliRunner().invoke(app, ["evaluate", *ground_truth_arguments(photos), "-m", str(trained), "--tune-on-masks"])
    assert "TUNED ON MASKS" in done.output
    assert json.loads((trained / "evaluation.json").read_text())["settings"]["thresholds_from"] == "masks"
    (trained / "evaluation.json").unlink()


def test_the_thresholds_come_from_the_tags(photos: Path, trained: Path) -> None:
    model = tagseg.load(trained)
    assert model.settings.thresholds_from == "tags"
    assert isinstance(model.settings.thresholds, tuple)
    done = CliRunner().invoke(
        app, ["evaluate", *ground_truth_arguments(photos), "-m", str(trained), "--threshold", "0.1"]
    )
    assert "thresholds 0.1 (the paper's)" in " ".join(done.output.split())
    (trained / "evaluation.json").unlink()


def test_check_prints_a_table_or_json_and_fails_where_training_would(photos: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    good = runner.invoke(app, ["check", *data_arguments(photos)])
    assert good.exit_code == 0
    assert "fit for training" in good.output
    assert json.loads(runner.invoke(app, ["check", *data_arguments(photos), "--json"]).output)["image_count"] == 40
    (tmp_path / "bad.csv").write_text("image,labels\nnone.png,disc\n")
    assert runner.invoke(app, ["check", str(tmp_path / "bad.csv")]).exit_code == 1


def test_masks_cannot_reach_the_training(photos: Path, tmp_path: Path) -> None:
    """With masks at hand, without, or with wrong ones, training ends in the same weights."""
    (photos / "masks").mkdir()
    for path in (photos / "images").iterdir():
        Image.fromarray(np.random.default_rng(0).integers(0, 7, (48, 48), dtype=np.uint8)).save(
            photos / "masks" / path.name
        )
    tagseg.train(source(photos), tmp_path / "with", recipe=small_recipe("training.epochs=2"), workers=0)
    assert any("mIoU" in key for line in (tmp_path / "with" / "metrics.jsonl").open() for key in json.loads(line))
    for path in (photos / "masks").iterdir():
        path.unlink()
    (photos / "masks").rmdir()
    tagseg.train(source(photos), tmp_path / "without", recipe=small_recipe("training.epochs=2"), workers=0)
    first, second = (tagseg.load_model(tmp_path / name / "model.safetensors") for name in ("with", "without"))
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())


def test_a_recipe_says_how_its_networks_are_used(photos: Path, tmp_path: Path) -> None:
    recipe = small_recipe("training.epochs=2", "inference.background_power=1")
    tagseg.train(source(photos), tmp_path / "run", recipe=recipe, workers=0)
    chosen, last = tagseg.load(tmp_path / "run"), tagseg.load(tmp_path / "run" / "checkpoint.safetensors")
    assert chosen.settings.background_power == last.settings.background_power == 1
    assert (chosen.settings.thresholds_from, last.settings.thresholds_from) == ("tags", "paper")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on(photos: Path, tmp_path: Path, number: int) -> None:
    """A process is stopped by a signal in the middle; the same command ends with the weights of a run left alone."""
    out = tmp_path / "run"
    settings = [*CHANGES, "--set", "training.epochs=12", "--set", "training.classification_epochs=11"]
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
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert re.search(r"tagseg: stopped at step \d+ of \d+; run the same command again to resume", said)
        assert "Traceback" not in said
        assert process.returncode == 130
    again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180, check=False)
    assert again.returncode == 0, again.stderr
    assert "Resuming from step" in again.stderr
    alone = [*command[: command.index("--out") + 1], str(tmp_path / "alone"), *command[command.index("--workers") :]]
    if number == signal.SIGKILL:
        subprocess.run(alone, capture_output=True, env=environment, timeout=180, check=True)
        first, second = (tagseg.load_model(tmp_path / name / "model.safetensors") for name in ("run", "alone"))
        assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())


@pytest.mark.slow
def test_two_processes_train_through_the_command_line(photos: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "-m",
        "tagseg",
        "train",
    ]
    command += [*data_arguments(photos), "--out", str(tmp_path / "run"), "--workers", "0", *CHANGES]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert read_metrics(tmp_path / "run")[0]["processes"] == 2
    assert done.stdout.count("Trained: ") == 1
    assert tagseg.load(tmp_path / "run").settings.thresholds_from == "tags"


def test_errors_of_training_are_one_line(
    photos: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*arguments: str, out: Path = tmp_path / "run") -> str:
        return fails(["train", *CHANGES, *arguments, "--out", str(out), "--workers", "0"], monkeypatch)

    assert "nowhere.csv" in train(str(tmp_path / "nowhere.csv"))
    (tmp_path / "empty").mkdir()
    assert "empty" in train(str(tmp_path / "empty"))
    assert "holds a run of another configuration (training.lr is 0.01 there, 0.5 here)" in train(
        *data_arguments(photos), "--set", "training.lr=0.5", out=trained
    )
    assert "exists and is not a run's folder" in train(*data_arguments(photos), out=photos)
    assert "unknown recipe 'resnet5'" in train(*data_arguments(photos), "--recipe", "resnet5")
    assert "unknown setting 'model.gat'" in train(*data_arguments(photos), "--set", "model.gat=none")
    (tmp_path / "one.csv").write_text("image,labels\n" + "".join(f"{i}.png,disc\n" for i in range(3)))
    for i in range(3):
        Image.new("RGB", (48, 48), (i, 0, 0)).save(tmp_path / f"{i}.png")
    assert "only 0 class occurs in some images and not in others" in train(str(tmp_path / "one.csv"))


def test_unreadable_images_stop_training_unless_they_are_skipped(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "images" / "broken.png").write_bytes(b"not an image")
    table = photos / "broken.csv"
    table.write_text((photos / "photos.csv").read_text() + "broken.png,disc\ngone.png,ring\n")
    arguments = ["train", str(table), "--images", str(photos / "images"), *CHANGES, "--workers", "0"]
    assert "gone.png" in fails([*arguments, "--out", str(tmp_path / "run")], monkeypatch)
    table.write_text((photos / "photos.csv").read_text() + "broken.png,disc\n")
    said = fails([*arguments, "--out", str(tmp_path / "run")], monkeypatch)
    assert "1 of 41 images cannot be read; the first: " in said
    assert "--skip-bad" in said
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run"), "--skip-bad"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["skipped"] == 1
    (photos / "images" / "broken.png").unlink()


def test_no_space_for_a_checkpoint(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 2**20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    said = fails(["train", *data_arguments(photos), *CHANGES, "--out", str(tmp_path / "run")], monkeypatch)
    assert "1 MiB free, and the checkpoints of this network need" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "nowhere.jpg"], "nowhere.jpg: does not exist; name an image, a folder, a zip or a pattern"),
        (
            ["predict", __file__, "-m", "nowhere"],
            "nowhere: does not exist; name a run folder, a model file, or default",
        ),
        (["report", "nowhere"], "nowhere: does not exist; name the folder that tagseg train wrote"),
        (["evaluate", "shapes:2", "-m", "nowhere"], "nowhere: does not exist"),
        (["check", "nowhere.csv"], "nowhere.csv"),
        (["recipes", "resnet"], "unknown recipe 'resnet'"),
        (["bench", "evaluate", "--model", "nowhere", "--data", "shapes:2"], "nowhere: does not exist"),
        (["bench", "evaluate", "--model", "default"], "needs a model and images with masks; add --model and --data"),
        (["bench", "evaluate", "--model", "default", "--images", "images"], "belong to --data"),
        (
            ["bench", "evaluate", "--model", "default", "--data", "shapes:2", "--threshold", "7"],
            "scores from 0 to 1, got 7",
        ),
        (["bench", "pamr", "--device", "gpu"], "unknown device 'gpu'; known: auto, cpu, cuda"),
        (["bench", "pamr", "--threshold", "0.1"], "are for the benchmark evaluate; name it"),
    ],
)
def test_wrong_paths_are_named_in_one_line(arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words in fails(arguments, monkeypatch)


def test_images_that_are_not_there(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.jpg").write_bytes(b"no")
    out = ["-o", str(tmp_path / "masks")]
    assert "none.jpg" in fails(["predict", str(tmp_path / "none.jpg"), "-m", str(trained), *out], monkeypatch)
    assert "empty" in fails(["predict", str(tmp_path / "empty"), "-m", str(trained), *out], monkeypatch)
    assert "broken.jpg" in fails(["predict", str(tmp_path / "broken.jpg"), "-m", str(trained), *out], monkeypatch)
    skipped = CliRunner().invoke(app, ["predict", str(tmp_path / "broken.jpg"), "-m", str(trained), *out, "--skip-bad"])
    assert skipped.exit_code == 0
    assert "Skipped: " in skipped.output


def test_recipes_are_listed_and_shown(tmp_path: Path) -> None:
    runner = CliRunner()
    listed, listed_all = (runner.invoke(app, ["recipes", *more]).output for more in ([], ["--all"]))
    assert [line.split()[0] for line in listed.splitlines()] == list(tagseg.recipes())
    assert "default" in tagseg.recipes()
    assert "resnet50" not in tagseg.recipes()
    assert [line.split()[0] for line in listed_all.splitlines()] == list(tagseg.recipes(all=True))
    assert "resnet50" in tagseg.recipes(all=True)
    (tmp_path / "mine.toml").write_text(runner.invoke(app, ["recipes", "vgg16"]).output)
    assert tagseg.Recipe.load(tmp_path / "mine.toml") == tagseg.Recipe.load("vgg16")
    assert tagseg.recipes()["wideresnet38"].endswith("--set model.pretrained=PATH")
    listed = runner.invoke(app, ["recipes", "--settings"]).output
    assert re.search(r"training.epochs +20 +Number of epochs", listed)
    assert all(meaning for _, meaning in describe_settings().values())


def test_a_callers_model_keeps_its_settings(photos: Path, trained: Path) -> None:
    model = tagseg.load(trained)
    before = model.settings
    data = tagseg.DataSource(
        str(photos / "photos.csv"), (str(photos / "images"),), masks=(str(photos / "ground truth"),)
    )
    tagseg.evaluate(data, model=model, tune_on_masks=True)
    tagseg.evaluate(data, model=model, threshold=0.7)
    assert model.settings == before


def test_too_few_images_to_hold_any_out(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("image,labels\n" + "".join(f"{i}.png,{tag}\n" for i, tag in enumerate("abc")))
    for i in range(3):
        Image.new("RGB", (48, 48), (i, 0, 0)).save(tmp_path / f"{i}.png")
    with pytest.raises(
        tagseg.DataError, match="few.csv: no images can be held out for validation; name some with val="
    ):
        tagseg.train(tmp_path / "few.csv", tmp_path / "run", recipe=small_recipe(), workers=0)


def test_training_works_off_the_main_thread(photos: Path, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        model = pool.submit(tagseg.train, source(photos), tmp_path / "run", recipe=small_recipe(), workers=0).result()
    assert model.classes == ("cross", "disc", "ring", "square", "star", "triangle")


def test_tensorboard_gets_curves_and_images(photos: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tagseg.train(source(photos), tmp_path / "run", recipe=small_recipe(), workers=0, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"train/loss", "validation/mAP"} <= set(events.Tags()["scalars"])
    assert events.Tags()["images"]


def test_help_does_not_wait_for_torch() -> None:
    loaded = "import sys, tagseg.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded]).returncode == 0


def test_what_tagseg_offers_can_be_imported() -> None:
    assert {"train", "load", "__version__"} <= set(dir(tagseg))
    assert all(getattr(tagseg, name) is not None for name in dir(tagseg))
