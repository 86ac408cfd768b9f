import json
from pathlib import Path

import pytest

from tagseg.models import build_network
from tagseg.training.logging import MetricsLog, RunProgress, TensorBoardWriter
from tests.training.small_run import run, small_data, small_recipe


def test_metrics_are_json_lines(tmp_path: Path) -> None:
    run(tmp_path / "run", small_recipe())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "validation"] == [1, 2, 3]
    assert all(line["step"] <= 12 for line in lines)
    assert len(small_data()[1]) == 8


def test_run_prints_nothing_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "run", small_recipe("training.epochs=2"))
    assert capsys.readouterr() == ("", "")


def test_tensorboard_of_a_resumed_run_has_every_step(tmp_path: Path) -> None:
    """An earlier session has written the steps up to its last validation, and no later ones."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path)
    for kind, step in (("train", 10), ("validation", 12), ("train", 20)):
        log.write(kind, step, loss=1.0)
    recipe, data = small_recipe(), small_data()[1]
    writer = TensorBoardWriter(tmp_path, data, recipe)
    log.write("validation", 24, loss=1.0)
    writer(build_network(recipe.model, data.classes), 2)
    writer.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [20]
    assert [event.step for event in events.Scalars("validation/loss")] == [24]


def test_run_says_what_it_does_and_when_the_model_will_be_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps of 1 s in the first of 3 epochs and of 2 s later, and validations of 5 s; tuning costs one more."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = RunProgress(small_recipe(), 4, 16)
    assert progress.describe(32, 8) == (
        "3 epochs of 32 images, the first 1 on tags alone: 12 steps of 8 images (4 an epoch)"
    )
    seconds_left = []
    for step in range(1, 13):
        now[0] += 1 if step <= 4 else 2
        progress.step(step, "loss 0.5")
        seconds_left.append(progress.seconds_left() if step != 4 else None)
        if step % 4 == 0:
            with progress.validation():
                now[0] += 5
    assert seconds_left[0] == 11 + 4 * 1  # a validation of two batches is taken to cost half as much as two steps
    assert seconds_left[4] == 7 * 2 + 3 * 5
    assert seconds_left[10] == 2 + 2 * 5
    assert capsys.readouterr().err == "Epoch 2/3, step 5/12, loss 0.5, about 0:00:29 left\n"
