"""Python functions of the package: training, evaluation, and what is exported."""

import json
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tagseg
from tests.photos import photos_source, train_on_photos, write_photos
from tests.training.small_run import small_recipe


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def trained(photos: Path) -> Path:
    return train_on_photos(photos)


def test_training_does_not_use_masks(photos: Path, tmp_path: Path) -> None:
    """Wrong masks beside the images are evaluated in each epoch, but the weights are those without masks."""
    (photos / "masks").mkdir()
    for path in (photos / "images").iterdir():
        Image.fromarray(np.random.default_rng(0).integers(0, 7, (48, 48), dtype=np.uint8)).save(
            photos / "masks" / path.name
        )
    tagseg.train(photos_source(photos), tmp_path / "with", recipe=small_recipe("training.epochs=2"), workers=0)
    assert any("mIoU" in key for line in (tmp_path / "with" / "metrics.jsonl").open() for key in json.loads(line))
    for path in (photos / "masks").iterdir():
        path.unlink()
    (photos / "masks").rmdir()
    tagseg.train(photos_source(photos), tmp_path / "without", recipe=small_recipe("training.epochs=2"), workers=0)
    first, second = (tagseg.load_model(tmp_path / name / "model.safetensors") for name in ("with", "without"))
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())


def test_recipe_sets_the_inference_settings(photos: Path, tmp_path: Path) -> None:
    recipe = small_recipe("training.epochs=2", "inference.background_power=1")
    tagseg.train(photos_source(photos), tmp_path / "run", recipe=recipe, workers=0)
    model, last_checkpoint = tagseg.load(tmp_path / "run"), tagseg.load(tmp_path / "run" / "checkpoint.safetensors")
    assert model.settings.background_power == last_checkpoint.settings.background_power == 1
    assert model.settings.size == last_checkpoint.settings.size == 54  # for crops of 48 pixels
    assert (model.settings.thresholds_from, last_checkpoint.settings.thresholds_from) == ("tags", "paper")


def test_run_is_not_resumed_on_other_images(tmp_path: Path) -> None:
    """Of the same number and names: only the tags of one have changed."""
    (tmp_path / "photos").mkdir()
    photos = write_photos(tmp_path / "photos")
    run = train_on_photos(photos)
    table = (photos / "photos.csv").read_text().splitlines()
    name, tags = table[7].split(",")
    table[7] = f"{name},{'disc' if tags == 'star' else 'star'}"
    (photos / "photos.csv").write_text("\n".join(table))
    before = (run / "checkpoint.safetensors").read_bytes()
    with pytest.raises(tagseg.ConfigError, match="train: 1 image with other tags, the first 'train-00006'"):
        train_on_photos(photos)
    assert (run / "checkpoint.safetensors").read_bytes() == before


def test_evaluate_does_not_change_the_settings_of_a_model(photos: Path, trained: Path) -> None:
    model = tagseg.load(trained)
    before = model.settings
    data = tagseg.DataSource(
        str(photos / "photos.csv"), (str(photos / "images"),), masks=(str(photos / "ground truth"),)
    )
    tagseg.evaluate(data, model=model, tune_on_masks=True)
    assert tagseg.evaluate(data, model=model, threshold=0.7, size="native").settings.size == "native"
    assert model.settings == before


def test_too_few_images_for_a_validation_split(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("image,labels\n" + "".join(f"{i}.png,{tag}\n" for i, tag in enumerate("abc")))
    for i in range(3):
        Image.new("RGB", (48, 48), (i, 0, 0)).save(tmp_path / f"{i}.png")
    with pytest.raises(
        tagseg.DataError, match="few.csv: no images can be held out for validation; name some with val="
    ):
        tagseg.train(tmp_path / "few.csv", tmp_path / "run", recipe=small_recipe(), workers=0)


def test_images_without_any_tag_are_refused(tmp_path: Path) -> None:
    Image.new("RGB", (48, 48)).save(tmp_path / "0.png")
    (tmp_path / "none.csv").write_text("image,labels\n0.png,\n")
    with pytest.raises(tagseg.DataError, match="none.csv: no image has a tag, so there is nothing to learn; add tags"):
        tagseg.train(tmp_path / "none.csv", tmp_path / "run", recipe=small_recipe(), workers=0)


def test_training_on_few_images_gives_a_warning_and_no_metric_without_a_value(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(12):
        Image.new("RGB", (48, 48), (20 * i, 0, 0)).save(tmp_path / f"{i}.png")
    (tmp_path / "few.csv").write_text("image,labels\n" + "".join(f"{i}.png,{'a' * (i < 2)}\n" for i in range(12)))
    recipe = small_recipe("training.epochs=2", "validation.fraction=0.1")
    tagseg.train(tmp_path / "few.csv", tmp_path / "run", recipe=recipe, workers=0, progress=True)
    assert "12 images are too few to learn from; add images, 20 at the least" in caplog.messages
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("Epoch 2/2: ")]
    assert "mAP" not in line


@pytest.mark.slow
def test_one_class_whose_negatives_have_no_tags(photos: Path, tmp_path: Path) -> None:
    """Training, thresholds, prediction, evaluation, pseudo labels and the report work with one class."""
    rows = [line.split(",") for line in (photos / "photos.csv").read_text().splitlines()[1:]]
    table = tmp_path / "disc.csv"
    table.write_text("image,labels\n" + "".join(f"{name},{'disc' * ('disc' in tags)}\n" for name, tags in rows))
    for mask in (photos / "ground truth").iterdir():
        target = np.array(Image.open(mask))
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray((target == 2).astype(np.uint8)).save(tmp_path / "masks" / mask.name)  # the second in the table
    source = tagseg.DataSource(table, images=photos / "images", masks=tmp_path / "masks")
    assert tagseg.check(source, recipe=small_recipe()).verdict == "fit with warnings"
    model = tagseg.train(source, tmp_path / "run", recipe=small_recipe(), workers=0)
    assert model.classes == ("disc",)
    held_out = [tags for name, tags in rows if Path(name).stem in (tmp_path / "run" / "validation.txt").read_text()]
    assert 0 < sum("disc" in tags for tags in held_out) < len(held_out)
    assert model.settings.thresholds_from == "tags"
    assert 0 < model.settings.thresholds_per_class(1)[0] < 1
    predictions = [model.predict(path) for path in (photos / "images").iterdir()]
    assert all(prediction.labels in ((), ("disc",)) and prediction.mask.max() <= 1 for prediction in predictions)
    result = tagseg.evaluate(source, model=model, out=tmp_path / "run")
    assert {protocol: matrix.num_counted for protocol, matrix in result.confusion.items()} == {
        "predicted-tags": 2,
        "true-tags": 2,
    }
    tagseg.write_pseudo_labels(source, tmp_path / "pseudo", model=model)
    values = {
        name: set(np.array(Image.open(tmp_path / "pseudo" / "SegmentationClass" / f"{Path(name).stem}.png")).flat)
        for name, _ in rows
    }
    assert {1} < set.union(*values.values()) <= {0, 1}
    assert all(values[name] == {0} for name, tags in rows if "disc" not in tags)
    student = small_recipe("model.method=supervised", "training.epochs=1")
    assert tagseg.train_masks(tmp_path / "pseudo", tmp_path / "student", recipe=student, workers=0).classes == ("disc",)
    assert "disc" in tagseg.write_report(tmp_path / "run", count=2).read_text()


def test_training_works_in_another_thread(photos: Path, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        model = pool.submit(
            tagseg.train, photos_source(photos), tmp_path / "run", recipe=small_recipe(), workers=0
        ).result()
    assert model.classes == ("cross", "disc", "ring", "square", "star", "triangle")


def test_tensorboard_has_curves_and_images(photos: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tagseg.train(photos_source(photos), tmp_path / "run", recipe=small_recipe(), workers=0, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"train/loss", "validation/mAP"} <= set(events.Tags()["scalars"])
    assert events.Tags()["images"]


def test_public_names_can_be_imported() -> None:
    assert {"train", "load", "__version__"} <= set(dir(tagseg))
    assert all(getattr(tagseg, name) is not None for name in dir(tagseg))


def test_training_leaves_no_trace_in_the_process(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Random state, signal handlers, cuDNN's mode and threads are as before, and nothing is printed."""
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    handler, benchmark = signal.getsignal(signal.SIGINT), torch.backends.cudnn.benchmark
    threads = threading.active_count()
    tagseg.train(photos_source(photos), tmp_path / "run", recipe=small_recipe(), workers=0, tensorboard=True)
    assert torch.equal(torch.rand(3), expected)
    assert signal.getsignal(signal.SIGINT) == handler
    assert torch.backends.cudnn.benchmark == benchmark
    assert threading.active_count() == threads
    assert capfd.readouterr() == ("", "")


def test_masks_that_do_not_fit_do_not_stop_training(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    write_photos(folder)
    (folder / "masks").mkdir()
    for path in (folder / "images").iterdir():
        Image.new("L", (48, 48), 9).save(folder / "masks" / path.name)  # there are six classes
    tagseg.train(photos_source(folder), tmp_path / "run", recipe=small_recipe("training.epochs=2"), workers=0)
    assert not any("mIoU" in line for line in (tmp_path / "run" / "metrics.jsonl").open())


def test_output_folder_is_checked_before_the_work(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(tagseg.ConfigError, match="file: is a file; name a folder"):
        tagseg.evaluate("nowhere.csv", model=trained, out=tmp_path / "file")


def test_training_starts_from_a_run_with_other_classes(photos: Path, trained: Path, tmp_path: Path) -> None:
    """The design comes from the model, so that the recipe's backbone does not matter, and the run's config says so."""
    table = (photos / "photos.csv").read_text().replace("ring", "donut")
    (photos / "renamed.csv").write_text(table)
    source = tagseg.DataSource(photos / "renamed.csv", images=photos / "images")
    changes = (f"model.pretrained={trained}", "training.epochs=2", "model.backbone=resnet50")
    model = tagseg.train(source, tmp_path / "run", recipe=small_recipe(*changes), workers=0)
    assert "donut" in model.classes
    assert "ring" not in model.classes
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["recipe"]["model"]["backbone"] == model.description["backbone"] == "test_resnet"
    again = tagseg.train(source, tmp_path / "run", recipe=small_recipe(*changes), workers=0)  # is complete
    assert again.classes == model.classes
    with pytest.raises(tagseg.WeightsError, match="nowhere/model.safetensors: does not exist"):
        tagseg.train(source, tmp_path / "new", recipe=small_recipe("model.pretrained=nowhere/model.safetensors"))


def test_report_of_a_run_whose_images_are_gone(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos / "images", tmp_path / "images")
    table = shutil.copy(photos / "photos.csv", tmp_path / "photos.csv")
    source = tagseg.DataSource(table, images=tmp_path / "images")
    tagseg.train(source, tmp_path / "run", recipe=small_recipe("training.epochs=2"), workers=0)
    for image in sorted((tmp_path / "images").iterdir())[:3]:
        image.write_bytes(b"no image")
    page = tagseg.write_report(tmp_path / "run", count=1).read_text()
    assert "Images cannot be read" in page
    shutil.rmtree(tmp_path / "images")
    page = tagseg.write_report(tmp_path / "run", count=1).read_text()
    assert "images: does not exist" in page
    assert "were not examined" in page
