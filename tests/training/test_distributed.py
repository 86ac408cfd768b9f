import multiprocessing
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
from torch.utils.data import DataLoader, TensorDataset

from tagseg.errors import Interrupted
from tagseg.models import Network, build_network
from tagseg.training.distributed import (
    ignore_signals,
    iterate,
    mixed_precision,
    preserve_accelerate_state,
    stop_signals,
)
from tagseg.training.logging import read_metrics
from tagseg.training.loop import train_network
from tests.training.small_run import run, small_data, small_recipe, validation_losses

SCRIPT = """
import sys, torch
from pathlib import Path
from tests.training.small_run import run, small_recipe
torch.set_num_threads(1)
run(Path(sys.argv[1]), small_recipe(*sys.argv[2:]), deterministic=True)
"""


@pytest.mark.slow
def test_two_processes_give_the_same_losses_as_one(tmp_path: Path) -> None:
    """Without randomness per process (gate, dropout) and with frozen batch norms; each has other labeled pixels."""
    settings = ["model.gate=deterministic", "training.classification_epochs=0", "pseudo_labels.weighting=pixels"]
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
    assert validation_losses(tmp_path / "two") == pytest.approx(validation_losses(tmp_path / "one"), rel=1e-5)


def test_automatic_precision_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have a GPU that is not trained on, or one that only emulates bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    assert [mixed_precision("auto", torch.device(name)) for name in ("cuda", "cpu")] == ["bf16", "no"]
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert mixed_precision("auto", torch.device("cuda")) == "no"


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_acknowledged_and_the_second_stops_at_once(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    def signal_twice() -> None:
        with stop_signals() as stop:
            stop.checkpoint_step = 7
            signal.raise_signal(number)
            assert stop.received
            assert "again quits at once; the last checkpoint is at step 7)" in capfd.readouterr().err
            signal.raise_signal(number)

    with pytest.raises(Interrupted, match="stopped at once; run the same command again"):
        signal_twice()


def test_workers_end_with_the_loop() -> None:
    """They ignore SIGTERM, by which Python would end them at exit: after an error it would wait for them forever."""
    loader = DataLoader(TensorDataset(torch.arange(100)), num_workers=1, worker_init_fn=ignore_signals)
    with iterate(loader) as items:
        next(items)
    assert not multiprocessing.active_children()
