import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState

import tagseg
from tagseg.errors import ConfigError, Interrupted
from tagseg.models import Network, build_network
from tagseg.models.serialization import CHECKPOINT_FILE, MODEL_FILE
from tagseg.predict import write_settings
from tagseg.training.distributed import preserve_accelerate_state
from tagseg.training.logging import read_metrics
from tagseg.training.loop import train_network
from tests.training.small_run import run, small_data, small_recipe


def assert_equal_weights(first: Network, second: Network) -> None:
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(out) if line["kind"] == "validation"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="sums on a GPU have no fixed order")
def test_resume_is_bit_identical(tmp_path: Path) -> None:
    recipe = small_recipe()
    whole = run(tmp_path / "whole", recipe)
    for step in (2, 5, 8):  # within the classification epoch, within and at the end of a later one
        with pytest.raises(Interrupted, match=f"stopped at step {step} of 12; run the same command again to resume"):
            run(tmp_path / "parts", recipe, stop_after=step, workers=step % 2)
    parts = run(tmp_path / "parts", recipe)
    assert_equal_weights(whole, parts)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert_equal_weights(
        tagseg.load_model(tmp_path / "whole" / MODEL_FILE), tagseg.load_model(tmp_path / "parts" / MODEL_FILE)
    )


def test_checkpoint_can_be_loaded_as_a_model(tmp_path: Path) -> None:
    """It holds the network of the last epoch, and settings cannot be written to it."""
    file = tmp_path / "run" / CHECKPOINT_FILE
    network = run(tmp_path / "run", small_recipe())
    loaded = tagseg.load_model(file)
    assert all(torch.equal(loaded.get_parameter(name), value) for name, value in network.named_parameters())
    (tmp_path / "run" / MODEL_FILE).unlink()  # as in a run without a complete epoch on pseudo labels
    with pytest.raises(ValueError, match=f"has no {MODEL_FILE}, but .*{CHECKPOINT_FILE} has the network as it stands"):
        tagseg.load(tmp_path / "run")
    with pytest.raises(ValueError, match=r"training resumes from this file, so it is not changed"):
        write_settings(file, tagseg.load(file).settings)


def test_complete_run_is_not_changed(tmp_path: Path) -> None:
    first = run(tmp_path / "run", small_recipe())
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert_equal_weights(first, run(tmp_path / "run", small_recipe()))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == metrics


def test_model_is_the_last_checkpoint(tmp_path: Path) -> None:
    run(tmp_path / "run", small_recipe())
    model, last = (tagseg.load_model(tmp_path / "run" / name) for name in (MODEL_FILE, CHECKPOINT_FILE))
    assert_equal_weights(model, last)


def test_best_checkpoint_has_the_lowest_loss_of_the_epochs_with_pseudo_labels(tmp_path: Path) -> None:
    recipe = small_recipe("validation.checkpoint=best")
    run(tmp_path / "run", recipe)
    best = min((1, 2), key=lambda epoch: losses(tmp_path / "run")[epoch])  # epoch 0 trains on labels alone
    # The same steps in a run with one more epoch, so that it can be interrupted after the best epoch.
    with pytest.raises(Interrupted):
        run(tmp_path / "interrupted", recipe.with_settings({"epochs": 4}), stop_after=4 * (best + 1))
    model, expected = (tagseg.load_model(tmp_path / name / MODEL_FILE) for name in ("run", "interrupted"))
    assert_equal_weights(model, expected)


def test_gradient_accumulation_gives_the_same_losses(tmp_path: Path) -> None:
    """Without randomness per image and with frozen batch norms."""
    settings = ("model.gate=deterministic", "training.classification_epochs=0")
    run(tmp_path / "whole", small_recipe(*settings), deterministic=True)
    run(tmp_path / "parts", small_recipe(*settings, "training.gradient_accumulation=4"), deterministic=True)
    assert losses(tmp_path / "whole") == pytest.approx(losses(tmp_path / "parts"), rel=1e-4)


def test_losses_decrease(tmp_path: Path) -> None:
    recipe = small_recipe("training.epochs=10", "training.classification_epochs=10", "training.lr=0.02")
    run(tmp_path / "run", recipe)
    values = [line["classification"] for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    assert min(values[-3:]) < values[0] - 0.05


def test_half_precision_trains(tmp_path: Path) -> None:
    run(tmp_path / "full", small_recipe())
    run(tmp_path / "half", small_recipe("training.precision=bf16"))
    assert losses(tmp_path / "half") == pytest.approx(losses(tmp_path / "full"), rel=0.1)
    assert losses(tmp_path / "half") != losses(tmp_path / "full")


def test_cam_trains_on_image_labels_alone(tmp_path: Path) -> None:
    network = run(tmp_path / "run", small_recipe("model.method=cam"))
    assert isinstance(network, tagseg.CAM)
    assert all(line["segmentation"] == 0 for line in read_metrics(tmp_path / "run") if line["kind"] == "train")


def test_non_finite_loss_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the loss is not finite at step \d+; lower training.lr, now 1e\+20"):
        run(tmp_path / "run", small_recipe("training.lr=1e20"))


def test_partial_files_of_a_killed_run_are_ignored(tmp_path: Path) -> None:
    """A killed process may leave a partial checkpoint and a partial line of metrics."""
    with pytest.raises(Interrupted):
        run(tmp_path / "run", small_recipe(), stop_after=5)
    (tmp_path / "run" / (CHECKPOINT_FILE + ".part")).write_bytes(b"half a checkpoint")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 9')
    assert_equal_weights(run(tmp_path / "run", small_recipe()), run(tmp_path / "whole", small_recipe()))


SCRIPT = """
import sys, torch
from pathlib import Path
from tests.training.small_run import run, small_recipe
torch.set_num_threads(1)
run(Path(sys.argv[1]), small_recipe(*sys.argv[2:]), deterministic=True)
"""


@pytest.mark.slow
def test_two_processes_give_the_same_losses_as_one(tmp_path: Path) -> None:
    """Without randomness per process (gate, dropout) and with frozen batch norms."""
    settings = ["model.gate=deterministic", "training.classification_epochs=0"]
    run(tmp_path / "one", small_recipe(*settings), deterministic=True)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    result = subprocess.run(
        [*command, str(script), str(tmp_path / "two"), *settings],
        env={
            **os.environ,
            "ACCELERATE_USE_CPU": "true",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert [read_metrics(tmp_path / name)[0]["processes"] for name in ("one", "two")] == [1, 2]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def test_metrics_are_json_lines(tmp_path: Path) -> None:
    run(tmp_path / "run", small_recipe())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "validation"] == [1, 2, 3]
    assert all(line["step"] <= 12 for line in lines)
    assert len(small_data()[1]) == 8


def process_state() -> tuple[object, ...]:
    """Global state that a run must restore."""
    accelerate_state = [dict(state._shared_state) for state in (PartialState, AcceleratorState, GradientState)]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return accelerate_state, handlers, torch.backends.cudnn.benchmark, torch.get_rng_state().tolist()


@pytest.fixture
def _fresh_accelerate_state() -> Iterator[None]:
    with preserve_accelerate_state():
        for state in (PartialState, AcceleratorState, GradientState):
            state._shared_state.clear()
        yield


@pytest.mark.usefixtures("_fresh_accelerate_state")
@pytest.mark.parametrize("benchmark", [False, True])
@pytest.mark.parametrize("has_accelerator", [False, True])
@pytest.mark.parametrize("ending", ["complete", "interrupted", "failed"])
def test_process_state_is_restored(
    ending: str, has_accelerator: bool, benchmark: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3) if has_accelerator else None
    train, validation = small_data()
    recipe = small_recipe("training.epochs=2", "training.precision=bf16")
    network = build_network(recipe.model, train.classes)
    before = process_state()

    def fail(_: Network) -> dict[str, float]:
        raise RuntimeError("failed")

    expected: dict[str, AbstractContextManager[object]] = {
        "complete": nullcontext(),
        "interrupted": pytest.raises(Interrupted),
        "failed": pytest.raises(RuntimeError),
    }
    with expected[ending]:
        train_network(
            network,
            recipe,
            train,
            validation,
            tmp_path,
            stop_after=2 if ending == "interrupted" else None,
            measure=fail if ending == "failed" else None,
        )
    assert process_state() == before
    if accelerator:
        assert (accelerator.mixed_precision, accelerator.gradient_accumulation_steps) == ("no", 3)


def test_run_prints_nothing_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "run", small_recipe("training.epochs=1"))
    assert capsys.readouterr() == ("", "")
