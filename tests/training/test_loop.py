import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tagseg
from tagseg.errors import Interrupted
from tagseg.models import Network
from tagseg.models.files import CHECKPOINT_FILE, MODEL_FILE
from tagseg.predict import write_settings
from tagseg.training.journal import read_journal
from tests.training.small import run, small_data, small_recipe


def assert_equal_weights(first: Network, second: Network) -> None:
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in read_journal(out) if line["kind"] == "validation"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="sums on a GPU have no fixed order")
def test_an_interrupted_run_ends_with_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    recipe = small_recipe()
    whole = run(tmp_path / "whole", recipe)
    for step in (2, 5, 8):  # within the classification epoch, within and at the end of a later one
        with pytest.raises(Interrupted, match=f"stopped at step {step} of 12; the same command goes on from there"):
            run(tmp_path / "parts", recipe, stop_after=step, workers=step % 2)
    parts = run(tmp_path / "parts", recipe)
    assert_equal_weights(whole, parts)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert_equal_weights(
        tagseg.load_model(tmp_path / "whole" / MODEL_FILE), tagseg.load_model(tmp_path / "parts" / MODEL_FILE)
    )


def test_a_checkpoint_is_a_model_too(tmp_path: Path) -> None:
    """The network where the run stands, at its end that of the last epoch; nothing may overwrite it."""
    file = tmp_path / "run" / CHECKPOINT_FILE
    last, read = run(tmp_path / "run", small_recipe()), tagseg.load_model(file)
    assert all(torch.equal(read.get_parameter(name), value) for name, value in last.named_parameters())
    (tmp_path / "run" / MODEL_FILE).unlink()  # as before the first epoch that trains masks
    with pytest.raises(ValueError, match=f"holds no {MODEL_FILE}; name .*{CHECKPOINT_FILE} for the run as it stands"):
        tagseg.load(tmp_path / "run")
    with pytest.raises(ValueError, match=r"a run goes on from this file, so nothing is written to it"):
        write_settings(file, tagseg.load(file).settings)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    first = run(tmp_path / "run", small_recipe())
    journal = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert_equal_weights(first, run(tmp_path / "run", small_recipe()))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == journal


def test_the_model_is_the_network_of_the_last_epoch(tmp_path: Path) -> None:
    run(tmp_path / "run", small_recipe())
    model, last = (tagseg.load_model(tmp_path / "run" / name) for name in (MODEL_FILE, CHECKPOINT_FILE))
    assert_equal_weights(model, last)


def test_lowest_loss_keeps_the_best_epoch_that_trains_masks(tmp_path: Path) -> None:
    lowest = "validation.checkpoint=best"
    run(tmp_path / "run", small_recipe(lowest))
    best = min(range(1, 3), key=lambda epoch: losses(tmp_path / "run")[epoch])
    with pytest.raises(Interrupted):
        run(tmp_path / "until", small_recipe(lowest), stop_after=4 * (best + 1)) if best < 2 else run(
            tmp_path / "until", small_recipe(lowest, "training.epochs=4"), stop_after=12
        )
    chosen = tagseg.load_model(tmp_path / "run" / MODEL_FILE)
    assert_equal_weights(chosen, tagseg.load_model(tmp_path / "until" / MODEL_FILE))


def test_accumulation_follows_the_same_losses(tmp_path: Path) -> None:
    """With all that is random per image off, and batch norms at rest, a batch in parts is the batch."""
    quiet = ("model.gate=deterministic", "training.classification_epochs=0")
    run(tmp_path / "whole", small_recipe(*quiet), quiet=True)
    run(tmp_path / "parts", small_recipe(*quiet, "training.gradient_accumulation=4"), quiet=True)
    assert losses(tmp_path / "whole") == pytest.approx(losses(tmp_path / "parts"), rel=1e-4)


def test_the_losses_fall(tmp_path: Path) -> None:
    recipe = small_recipe("training.epochs=10", "training.classification_epochs=10", "training.lr=0.02")
    run(tmp_path / "run", recipe)
    values = [line["classification"] for line in read_journal(tmp_path / "run") if line["kind"] == "train"]
    assert min(values[-3:]) < values[0] - 0.05


def test_half_precision_trains(tmp_path: Path) -> None:
    run(tmp_path / "full", small_recipe())
    run(tmp_path / "half", small_recipe("training.precision=bf16"))
    assert losses(tmp_path / "half") == pytest.approx(losses(tmp_path / "full"), rel=0.1)
    assert losses(tmp_path / "half") != losses(tmp_path / "full")


def test_cam_trains_the_tags_alone(tmp_path: Path) -> None:
    network = run(tmp_path / "run", small_recipe("model.method=cam"))
    assert isinstance(network, tagseg.CAM)
    assert all(line["segmentation"] == 0 for line in read_journal(tmp_path / "run") if line["kind"] == "train")


def test_a_loss_that_explodes_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"the loss is not finite at step \d+; lower training.lr, now 1e\+20"):
        run(tmp_path / "run", small_recipe("training.lr=1e20"))


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    """What a kill leaves of a checkpoint in the making is not mistaken for one."""
    with pytest.raises(Interrupted):
        run(tmp_path / "run", small_recipe(), stop_after=5)
    (tmp_path / "run" / (CHECKPOINT_FILE + ".part")).write_bytes(b"half a checkpoint")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 9')
    assert_equal_weights(run(tmp_path / "run", small_recipe()), run(tmp_path / "whole", small_recipe()))


SCRIPT = """
import sys, torch
from pathlib import Path
from tests.training.small import run, small_recipe
torch.set_num_threads(1)
run(Path(sys.argv[1]), small_recipe(*sys.argv[2:]), quiet=True)
"""


def test_two_processes_follow_the_losses_of_one(tmp_path: Path) -> None:
    """With what is random per process (gate, dropout) off and batch norms at rest."""
    settings = ["model.gate=deterministic", "training.classification_epochs=0"]
    run(tmp_path / "one", small_recipe(*settings), quiet=True)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    result = subprocess.run(
        [*command, str(script), str(tmp_path / "two"), *settings],
        env={
            **os.environ,
            "ACCELERATE_USE_CPU": "true",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert [read_journal(tmp_path / name)[0]["processes"] for name in ("one", "two")] == [1, 2]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def test_metrics_are_plain_json_lines(tmp_path: Path) -> None:
    run(tmp_path / "run", small_recipe())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "validation"] == [1, 2, 3]
    assert all(line["step"] <= 12 for line in lines)
    assert len(small_data()[1]) == 8
