from pathlib import Path

import pytest
import torch

import tagseg
from tagseg._hub import CHECKPOINT_FILE, MODEL_FILE
from tagseg.errors import Interrupted
from tagseg.training.optimizer import MovingAverage, schedule_factor
from tagseg.training.recipe import TrainingSettings
from tests.training.small_run import run, small_recipe


def test_learning_rate_grows_in_the_warm_up_and_falls_to_0() -> None:
    linear = TrainingSettings(schedule="linear", warmup_steps=4)
    factors = [schedule_factor(linear, step, 20) for step in range(20)]
    assert factors[0] == pytest.approx(0.25)
    assert factors[4] == pytest.approx(0.8)
    assert factors[-1] == pytest.approx(0.05)
    assert schedule_factor(TrainingSettings(), 7, 20) == 1


def test_average_follows_the_weights_and_the_statistics() -> None:
    network = tagseg.build_model("test_resnet", 2, width=16)
    average = MovingAverage(network, 0.5)
    first = network.get_parameter("decoder.0.weight").detach().clone()
    with torch.no_grad():
        network.get_parameter("decoder.0.weight").add_(1)
        network.get_buffer("decoder.1.running_mean").add_(4)
    average.update(100)
    assert torch.allclose(average.network.get_parameter("decoder.0.weight"), first + 0.5)
    assert torch.allclose(average.network.get_buffer("decoder.1.running_mean"), torch.tensor(2.0))


@pytest.mark.skipif(torch.cuda.is_available(), reason="sums on a GPU have no fixed order")
def test_run_with_adamw_schedule_and_average_resumes_bit_for_bit(tmp_path: Path) -> None:
    recipe = small_recipe(
        "training.optimizer=adamw", "training.schedule=linear", "training.warmup_steps=3", "training.ema=0.9"
    )
    run(tmp_path / "uninterrupted", recipe)
    for step in (2, 7):
        with pytest.raises(Interrupted):
            run(tmp_path / "resumed", recipe, stop_after=step)
    run(tmp_path / "resumed", recipe)
    for file in (MODEL_FILE, CHECKPOINT_FILE):
        first, second = (tagseg.load_model(tmp_path / name / file) for name in ("uninterrupted", "resumed"))
        for name, tensor in first.state_dict().items():
            assert torch.equal(tensor, second.state_dict()[name]), (file, name)


def test_model_of_a_run_with_average_is_the_average(tmp_path: Path) -> None:
    trained = run(tmp_path / "run", small_recipe("training.ema=0.9"))
    model, checkpoint = (tagseg.load_model(tmp_path / "run" / name) for name in (MODEL_FILE, CHECKPOINT_FILE))
    assert torch.equal(model.get_parameter("decoder.0.weight"), checkpoint.get_parameter("decoder.0.weight"))
    assert not torch.equal(model.get_parameter("decoder.0.weight"), trained.get_parameter("decoder.0.weight"))
