import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tagseg
from tagseg.data import ImageDataset, shapes
from tagseg.data.masks import MaskDataset
from tagseg.errors import ConfigError, DataError
from tagseg.training.logging import read_metrics
from tagseg.training_run import check_label_evidence, few_image_warnings, images_with_mask_labels
from tests.training.small_run import student_recipe


def with_tags(rows: list[list[int]], classes: list[str]) -> ImageDataset:
    data = shapes(len(rows))
    return ImageDataset(classes, data.image_ids, torch.tensor(rows), data.images)


def test_class_without_images_is_refused() -> None:
    with pytest.raises(DataError, match=r"no image is tagged 'cat', so it cannot be learned; add images of it or"):
        check_label_evidence(with_tags([[1, 0, 0], [0, 0, 1]], ["dog", "cat", "sofa"]))
    with pytest.raises(DataError, match=r"no image is tagged 'dog' \(nor 1 more\)"):
        check_label_evidence(with_tags([[0, 0, 1], [0, 0, 1]], ["dog", "cat", "sofa"]))


def test_labels_that_no_image_lacks_are_refused() -> None:
    with pytest.raises(DataError, match="every image is tagged 'dog': .* add images without it, which need no tags"):
        check_label_evidence(with_tags([[1], [1]], ["dog"]))
    with pytest.raises(DataError, match="every image has all classes: .* add images that lack some"):
        check_label_evidence(with_tags([[1, 1], [1, 1]], ["dog", "sofa"]))


def test_one_class_suffices_if_some_images_lack_it() -> None:
    assert check_label_evidence(with_tags([[1], [0]], ["dog"])) == []


def test_class_in_every_image_gives_a_warning() -> None:
    (warning,) = check_label_evidence(with_tags([[1, 0, 1], [1, 1, 0]], ["dog", "sofa", "cat"]))
    assert warning.startswith("class 'dog' occurs in every image")
    assert check_label_evidence(with_tags([[1, 0], [0, 1]], ["dog", "sofa"])) == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    recipe = student_recipe(
        "transforms.crop=96", "transforms.scale=[1.0, 1.3]", "training.epochs=8", "inference.size=96"
    )
    tagseg.train_masks("shapes:160", out, recipe=recipe, workers=0)
    return out


@pytest.mark.slow
def test_run_on_masks(trained: Path) -> None:
    """The loss falls, the masks are found, and evaluation, prediction and the report work as for tags."""
    losses = [line["loss"] for line in read_metrics(trained) if line["kind"] == "validation"]
    assert losses[-1] < 0.6 * losses[0]
    model = tagseg.load(trained)
    assert model.settings.background_power == 1
    assert model.settings.temperature != 1
    result = tagseg.evaluate(tagseg.DataSource("shapes:40", split="test"), model=model)
    assert result.mean_iou("true-tags") > 0.35
    page = tagseg.write_report(trained, count=1).read_text()
    assert "This run learned from masks" in page
    assert "never trained" not in page


@pytest.mark.slow
def test_predicted_tags_are_the_argmax_over_all_classes(trained: Path) -> None:
    model = tagseg.load(trained)
    data = shapes(8, split="test")
    for index in range(len(data)):
        image = data.images.read(index)
        for tta in (False, True):
            everything = model.predict(image, tags=model.classes, tta=tta)
            assert np.array_equal(model.predict(image, tta=tta).mask, everything.mask)


def test_recipes_of_the_other_training_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trains on image tags: its model.method is single-stage"):
        tagseg.train_masks("shapes:8", tmp_path / "run", recipe="default")
    with pytest.raises(ConfigError, match="trains on masks; use train_masks"):
        tagseg.train("shapes:8", tmp_path / "run", recipe="student")
    with pytest.raises(ConfigError, match="background_power of a supervised network must be 1, got 3"):
        tagseg.train_masks("shapes:8", tmp_path / "run", background_power=3.0)


def write_folder(root: Path, *, value: int = 2) -> None:
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for index in range(4):
        Image.fromarray(np.full((40, 48, 3), 60 * index, np.uint8)).save(root / "images" / f"{index}.jpg")
        mask = np.zeros((40, 48), np.uint8)
        mask[:20] = value if index == 3 else 1 + index % 2
        Image.fromarray(mask).save(root / "masks" / f"{index}.png")


def test_folder_of_images_and_masks(tmp_path: Path) -> None:
    write_folder(tmp_path)
    data = tagseg.DataSource(tmp_path).open()
    assert data.classes == ("class 1", "class 2")
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert tagseg.DataSource(tmp_path).open().classes == ("cat", "dog")
    assert tagseg.DataSource(tmp_path).open_masks()["1"].max() == 2
    tagseg.train_masks(tmp_path, tmp_path / "run", recipe=student_recipe("training.epochs=1"), workers=0, val=tmp_path)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["classes"] == ["cat", "dog"]


def test_mask_with_an_unknown_value_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, value=7)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    with pytest.raises(DataError, match=r"3\.png: has the value 7, but the classes only reach 2"):
        tagseg.train_masks(tmp_path, tmp_path / "run", recipe=student_recipe(), workers=0)


def test_data_without_masks_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "t.csv").write_text("image,labels\nimages/0.jpg,cat\n")
    (tmp_path / "masks").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="no masks were found; name their folder or zip with masks="):
        tagseg.train_masks(tmp_path / "t.csv", tmp_path / "run", recipe=student_recipe(), workers=0)


def test_mask_dataset_of_other_ids_is_refused() -> None:
    with pytest.raises(DataError, match="none of the 4 images has a mask"):
        images_with_mask_labels(shapes(4), MaskDataset(shapes(1).classes, {}))


def test_few_images_give_warnings() -> None:
    few = with_tags([[1, 0]] * 9 + [[0, 1]] * 3, ["dog", "cat"])
    assert few_image_warnings(few) == [
        "12 images are too few to learn from; add images, 20 at the least",
        "1 class (cat: 3) with fewer than 5 images, too few to learn from; add images or remove the class",
    ]
    assert few_image_warnings(with_tags([[1, 0], [0, 1]] * 10, ["dog", "cat"])) == []
