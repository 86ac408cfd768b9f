import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import tagseg
from tagseg.errors import ConfigError
from tagseg.models import build_network
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import (
    ImageList,
    ListedImage,
    check_disk_space,
    hold_run,
    prepare_folder,
    read_config,
    read_held_out,
    training_data,
    validation_data,
    write_held_out,
)
from tests.training.small_run import small_recipe

CLASSES = ("cat", "dog")
DATA: dict[str, Any] = {"train": {"data": "photos.csv", "image_count": 40}}
IMAGES = {"train": {"a": ListedImage("01", ("cat",)), "b": ListedImage("02", ()), "c": ListedImage("03", ("dog",))}}


def test_configuration_round_trip(tmp_path: Path) -> None:
    recipe = small_recipe("training.seed=7")
    prepare_folder(tmp_path / "new" / "run", recipe, CLASSES, DATA, IMAGES)
    config = read_config(tmp_path / "new" / "run")
    assert Recipe.parse(config["recipe"]) == recipe
    assert config["classes"] == ["cat", "dog"]
    assert DATA.items() <= config["data"].items()
    assert config["versions"]["torch"] == version("torch")


def test_folder_of_the_same_run_is_accepted_and_not_changed(tmp_path: Path) -> None:
    """Also if other versions of the packages started it."""
    prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, IMAGES)
    config = {**read_config(tmp_path), "versions": {"tagseg": "0.0"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "metrics.jsonl").touch()
    prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, IMAGES)
    assert read_config(tmp_path) == config


def test_first_three_differences_of_another_run_are_named(tmp_path: Path) -> None:
    prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, IMAGES)
    with pytest.raises(ConfigError) as error:
        prepare_folder(
            tmp_path, small_recipe("training.lr=0.5", "training.seed=1"), ("cat",), {"train": "other.csv"}, IMAGES
        )
    assert error.value.for_cli() == (
        f"{tmp_path} holds a run of another configuration (training.lr is 0.01 there, 0.5 here; "
        'training.seed is 0 there, 1 here; classes is ["cat", "dog"] there, ["cat"] here); '
        "choose another folder with --out, or delete that one"
    )


@pytest.mark.parametrize(
    ("images", "change"),
    [
        ({**IMAGES["train"], "d": ListedImage("04", ())}, "1 image added, the first 'd'"),
        ({"c": IMAGES["train"]["c"]}, "2 images removed, the first 'a'"),
        ({**IMAGES["train"], "b": ListedImage("02", ("dog",))}, "1 image with other tags, the first 'b'"),
        ({**IMAGES["train"], "c": ListedImage("33", ("dog",))}, "1 image with other content, the first 'c'"),
        (dict(reversed(IMAGES["train"].items())), "the images are in another order"),
    ],
)
def test_run_is_resumed_on_the_same_images_only(tmp_path: Path, images: ImageList, change: str) -> None:
    prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, IMAGES)
    with pytest.raises(ConfigError, match=f"holds a run of another configuration .train: {change}; "):
        prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, {"train": images})
    (tmp_path / "images.jsonl").write_text("[")  # the digest in config.json suffices to refuse, not to name the images
    with pytest.raises(ConfigError, match="data.digests.train is"):
        prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, {"train": images})


def test_folder_that_a_killed_process_had_just_made_is_accepted(tmp_path: Path) -> None:
    for name in (".lock", ".lock.holder", "config.json.0123abcd.part"):
        (tmp_path / name).touch()
    prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, IMAGES)
    (tmp_path / "images.jsonl").unlink()
    prepare_folder(tmp_path, small_recipe(), CLASSES, DATA, IMAGES)
    assert (tmp_path / "images.jsonl").is_file()


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".features-1" / "maps").mkdir(parents=True)
    (tmp_path / "checkpoint.safetensors.0123abcd.part").touch()
    with hold_run(tmp_path):
        assert (tmp_path / ".features-1").exists()  # the folder may be of somebody else
    (tmp_path / "config.json").touch()
    with hold_run(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {".lock", ".lock.holder", "config.json"}


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for out in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(ConfigError, match="exists and is not a run folder"):
            prepare_folder(out, small_recipe(), CLASSES, DATA, IMAGES)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"recipe": {}, "classes": []}', "[" * 100_000])
def test_damaged_configuration_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(
        ConfigError,
        match=r"config\.json: .*; name the folder of another run: this file is not the configuration of one",
    ):
        read_config(tmp_path)


def test_validation_images_round_trip(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no validation.txt, which names the validation images"):
        read_held_out(tmp_path)
    image_ids = ["2007_000033", "with spaces, and a comma", "été", "folder/image"]
    write_held_out(tmp_path, image_ids)
    assert read_held_out(tmp_path) == image_ids


def test_resumed_run_needs_less_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint and model are on the disk already, but a new checkpoint is written before the old one goes."""
    network = build_network(small_recipe().model, CLASSES)
    size = sum(tensor.nbytes for tensor in network.state_dict().values())

    def check(free: int) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))
        check_disk_space(tmp_path, network)

    check(5 * size)
    with pytest.raises(ConfigError, match="MiB free, and the checkpoints of this network need"):
        check(5 * size - 1)
    (tmp_path / "checkpoint.safetensors").write_bytes(bytes(3 * size))
    check(2 * size)
    with pytest.raises(ConfigError, match="MiB free, and the checkpoints of this network need"):
        check(2 * size - 1)


def test_training_and_validation_data_are_the_images_of_a_run(tmp_path: Path) -> None:
    recipe = small_recipe("training.epochs=1", "training.classification_epochs=0")
    tagseg.train("shapes:40", tmp_path / "split", recipe=recipe, workers=0)
    train_images, (val_images, _) = training_data(tmp_path / "split"), validation_data(tmp_path / "split")
    assert not set(train_images.image_ids) & set(val_images.image_ids)
    assert len(train_images) + len(val_images) == 40
    tagseg.train("shapes:40", tmp_path / "run", val="shapes:6", recipe=recipe, workers=0)
    assert len(training_data(tmp_path / "run")) == 40  # also those that were named for validation
    assert len(validation_data(tmp_path / "run")[0]) == 6
