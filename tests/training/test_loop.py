import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tagseg
from tagseg._hub import CHECKPOINT_FILE, MODEL_FILE
from tagseg.data import ImageDataset, shapes, shapes_masks
from tagseg.data.files import FileRef, ImageFiles
from tagseg.errors import ConfigError, DataError, Interrupted, ProcessLost
from tagseg.models import Network, build_network
from tagseg.predict import write_settings
from tagseg.training.distributed import explain_lost_processes, iterate
from tagseg.training.logging import read_metrics
from tagseg.training.loop import train_network
from tagseg.training.sampler import ResumableBatchSampler
from tagseg.training.transforms import TrainingImages
from tests.training.small_run import run, small_data, small_recipe, student_recipe, validation_losses


def assert_equal_weights(first: Network, second: Network) -> None:
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def logged(out: Path) -> list[dict[str, Any]]:
    """Lines of the log, without what differs between equal runs: sessions and speed."""
    lines = [line for line in read_metrics(out) if line["kind"] != "session"]
    return [{key: value for key, value in line.items() if key != "images_per_second"} for line in lines]


@pytest.mark.skipif(torch.cuda.is_available(), reason="sums on a GPU have no fixed order")
def test_resume_is_bit_identical(tmp_path: Path) -> None:
    recipe = small_recipe()
    uninterrupted = run(tmp_path / "uninterrupted", recipe)
    for step in (2, 5, 8):  # within the classification epoch, within and at the end of a later one
        with pytest.raises(Interrupted, match=f"stopped at step {step} of 12; run the same command again to resume"):
            run(tmp_path / "resumed", recipe, stop_after=step, workers=step % 2)
    resumed = run(tmp_path / "resumed", recipe)
    assert_equal_weights(uninterrupted, resumed)
    assert logged(tmp_path / "uninterrupted") == logged(tmp_path / "resumed")
    assert_equal_weights(
        tagseg.load_model(tmp_path / "uninterrupted" / MODEL_FILE), tagseg.load_model(tmp_path / "resumed" / MODEL_FILE)
    )


def run_on_masks(out: Path, *, stop_after: int | None = None) -> Network:
    """Train or resume a small run on masks, and return its model."""
    out.mkdir(exist_ok=True)
    data, masks, recipe = shapes(40, size=48), shapes_masks(40, size=48), student_recipe()
    torch.manual_seed(0)
    network = build_network(recipe.model, data.classes)
    train, validation = data.subset(range(32)), data.subset(range(32, 40))
    train_network(network, recipe, train, validation, out, masks=(masks, masks), stop_after=stop_after)
    return tagseg.load_model(out / MODEL_FILE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="sums on a GPU have no fixed order")
def test_resume_on_masks_is_bit_identical(tmp_path: Path) -> None:
    uninterrupted = run_on_masks(tmp_path / "uninterrupted")
    for step in (2, 5):
        with pytest.raises(Interrupted):
            run_on_masks(tmp_path / "resumed", stop_after=step)
    assert_equal_weights(uninterrupted, run_on_masks(tmp_path / "resumed"))


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
    best = min((1, 2), key=lambda epoch: validation_losses(tmp_path / "run")[epoch])  # epoch 0 trains on labels alone
    # The same steps in a run with one more epoch, so that it can be interrupted after the best epoch.
    with pytest.raises(Interrupted):
        run(tmp_path / "interrupted", recipe.with_settings({"epochs": 4}), stop_after=4 * (best + 1))
    model, expected = (tagseg.load_model(tmp_path / name / MODEL_FILE) for name in ("run", "interrupted"))
    assert_equal_weights(model, expected)


def test_gradient_accumulation_gives_the_same_losses(tmp_path: Path) -> None:
    """Without randomness per image and with frozen batch norms."""
    settings = ("model.gate=deterministic", "training.classification_epochs=0")
    run(tmp_path / "full", small_recipe(*settings), deterministic=True)
    run(tmp_path / "accumulated", small_recipe(*settings, "training.gradient_accumulation=4"), deterministic=True)
    assert validation_losses(tmp_path / "full") == pytest.approx(validation_losses(tmp_path / "accumulated"), rel=1e-4)


def test_losses_decrease(tmp_path: Path) -> None:
    recipe = small_recipe("training.epochs=10", "training.classification_epochs=9", "training.lr=0.02")
    run(tmp_path / "run", recipe)
    values = [line["classification"] for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    assert min(values[-3:]) < values[0] - 0.05


def test_losses_in_half_precision_are_within_one_percent(tmp_path: Path) -> None:
    settings = ["model.gate=deterministic", "training.classification_epochs=0", "pseudo_labels.weighting=pixels"]
    for precision in ("fp32", "bf16"):
        run(tmp_path / precision, small_recipe(*settings, f"training.precision={precision}"), deterministic=True)
    full, half = (
        [line["loss"] for line in read_metrics(tmp_path / name) if "loss" in line] for name in ("fp32", "bf16")
    )
    assert half == pytest.approx(full, rel=0.01)
    assert half != full


def test_cam_trains_on_image_labels_alone(tmp_path: Path) -> None:
    network = run(tmp_path / "run", small_recipe("model.method=cam"))
    assert isinstance(network, tagseg.CAM)
    assert all(line["segmentation"] == 0 for line in read_metrics(tmp_path / "run") if line["kind"] == "train")


def test_non_finite_loss_stops_the_run_and_names_the_images(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"the loss is not finite at step (\d+), with train-\d+ .*now 1e\+20"
    ) as error:
        run(tmp_path / "run", small_recipe("training.lr=1e20"))
    names = (tmp_path / "run" / "not-finite.txt").read_text().splitlines()
    assert names[0] in str(error.value)
    assert len(names) == len(set(names)) == 8
    assert set(names) <= set(small_data()[0].image_ids)


def test_weights_that_are_not_finite_are_never_in_a_checkpoint(tmp_path: Path) -> None:
    """Also if the run is asked to stop between two lines of the log."""
    with pytest.raises(ConfigError, match="the loss is not finite at step 2"):
        run(tmp_path / "run", small_recipe("training.lr=1e20", "training.epochs=9"), stop_after=3)
    assert not (tmp_path / "run" / CHECKPOINT_FILE).exists()


def test_partial_files_of_a_killed_run_are_ignored(tmp_path: Path) -> None:
    """A killed process may leave a partial checkpoint and a partial line of metrics."""
    with pytest.raises(Interrupted):
        run(tmp_path / "run", small_recipe(), stop_after=5)
    (tmp_path / "run" / (CHECKPOINT_FILE + ".part")).write_bytes(b"half a checkpoint")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 9')
    assert_equal_weights(run(tmp_path / "run", small_recipe()), run(tmp_path / "uninterrupted", small_recipe()))


@pytest.mark.parametrize("workers", [0, 1])
def test_image_that_vanishes_during_training_is_named_in_one_line(tmp_path: Path, workers: int) -> None:
    data = ImageDataset(["a"], ["gone"], torch.ones(1, 1), ImageFiles((FileRef(tmp_path / "gone.png"),)))
    images = TrainingImages(data, small_recipe().transforms, 0)
    loader = DataLoader(images, batch_sampler=ResumableBatchSampler(1, 1), num_workers=workers)
    with pytest.raises(DataError) as error, iterate(loader) as batches:
        next(batches)
    assert str(error.value).startswith(str(tmp_path / "gone.png"))
    assert "\n" not in str(error.value)


@pytest.mark.skipif(os.name != "posix", reason="workers are signalled")
def test_killed_data_worker_is_reported_in_one_line() -> None:
    """As the kernel kills one when the memory is full."""
    loader = DataLoader(TensorDataset(torch.arange(1000)), num_workers=1)

    def lose_a_worker() -> None:
        with explain_lost_processes(), iterate(loader) as batches:
            next(batches)
            (worker,) = multiprocessing.active_children()
            worker.kill()
            list(batches)

    with pytest.raises(
        ProcessLost, match="a data worker has ended .*; often the memory is full: lower workers="
    ) as error:
        lose_a_worker()
    assert "\n" not in str(error.value)
