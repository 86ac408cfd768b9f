"""Classes that are kept, renamed or merged, in labels and masks of every format."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tagseg
from tagseg.data import DataError, DataSource, shapes, shapes_masks
from tagseg.data.mask_folders import PSEUDO_LABELS_FILE
from tests.data.small_datasets import write_coco, write_image, write_mask, write_text, write_voc

CHOICE = "vehicle=car|bus,dog"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Images a (car), b (bus, dog), c (dog), d (cat) and e (nothing); mask values are bus 1, car 2, cat 3, dog 4."""
    for name, value in {"a": 2, "b": 1, "c": 4, "d": 3, "e": 255}.items():
        write_image(tmp_path / f"{name}.png")
        write_mask(tmp_path / "masks" / f"{name}.png", value)
    return write_text(tmp_path / "t.csv", "image,labels\na.png,car\nb.png,bus;dog\nc.png,dog\nd.png,cat\ne.png,\n")


def test_classes_are_kept_renamed_and_merged(table: Path) -> None:
    source = DataSource(table, classes=CHOICE)
    dataset, masks = source.open(), source.open_masks()
    assert dataset.classes == masks.classes == ("vehicle", "dog")
    assert dataset.image_ids == tuple("abcde")
    assert dataset.labels.tolist() == [[1, 0], [1, 1], [0, 1], [0, 0], [0, 0]]
    # Pixels of a dropped class are background; ignored ones stay ignored.
    assert [int(masks[name].max()) for name in "abcde"] == [1, 1, 2, 0, 255]


def test_model_classes_set_the_order(table: Path) -> None:
    source = DataSource(table, classes=CHOICE)
    dataset, masks = source.open(("zebra", "dog", "vehicle")), source.open_masks(("zebra", "dog", "vehicle"))
    assert dataset.labels.tolist()[1] == [0, 1, 1]
    assert [int(masks[name].max()) for name in "ac"] == [3, 2]
    with pytest.raises(DataError, match="t.csv: the model has no such class: unknown class 'vehicle'; known: cat, dog"):
        source.open(("cat", "dog"))


def test_choice_survives_the_description_of_a_run(table: Path) -> None:
    source = DataSource(table, classes=CHOICE)
    fields = json.loads(json.dumps(source.located().describe()))
    assert DataSource.from_description(fields) == source.located()
    assert DataSource(table, classes=["vehicle=car|bus", "dog"]) == source
    assert "classes" not in DataSource(table).describe()


def write_class_folders(root: Path) -> Path:
    write_image(root / "classes" / "dog" / "1.png")
    write_image(root / "classes" / "cat" / "2.png")
    return root / "classes"


def write_mask_folder(root: Path) -> Path:
    write_image(root / "images" / "1.png")
    write_mask(root / "masks" / "1.png", 2)
    write_text(root / "classes.txt", "cat\ndog\n")
    return root


def write_pseudo_label_folder(root: Path) -> Path:
    data = {"path": str(write_class_folders(root)), "classes": ["dog", "kitten=cat"]}
    write_text(root / PSEUDO_LABELS_FILE, json.dumps({"data": data, "classes": ["kitten", "dog"]}))
    write_mask(root / "SegmentationClass" / "dog" / "1.png", 2)
    return root


@pytest.mark.parametrize(
    ("write", "split"),
    [
        (write_class_folders, None),
        (write_mask_folder, None),
        (write_pseudo_label_folder, None),
        (write_voc, "train"),
        (lambda root: write_coco(root, [{"id": 1, "image_id": 7, "category_id": 3, "segmentation": []}]), None),
    ],
)
def test_every_format_follows_the_choice(tmp_path: Path, write: Callable[[Path], Path], split: str | None) -> None:
    dataset = DataSource(write(tmp_path), split=split, classes="pet=dog").open()
    assert dataset.classes == ("pet",)
    assert dataset.labels[:, 0].sum() == 1
    assert len(dataset) >= 1


def test_masks_of_folders_and_pseudo_labels_follow_the_choice(tmp_path: Path) -> None:
    for write in (write_mask_folder, write_pseudo_label_folder):
        masks = DataSource(write(tmp_path / write.__name__), classes="pet=dog").open_masks()
        assert masks.classes == ("pet",)
        assert [np.unique(masks[image_id]).tolist() for image_id in masks] == [[1]]


def test_generated_images_follow_the_choice() -> None:
    source = DataSource("shapes:20", classes="round=disc|ring,star")
    dataset, masks, every, every_mask = source.open(), source.open_masks(), shapes(20), shapes_masks(20)
    columns = [every.classes.index(name) for name in ("disc", "ring", "star")]
    for index, image_id in enumerate(every.image_ids):
        disc, ring, star = every.labels[index, columns].tolist()
        assert dataset.labels[index].tolist() == [max(disc, ring), star]
        expected = np.isin(every_mask[image_id], [1 + column for column in columns[:2]])
        assert ((masks[image_id] == 1) == expected).all()


def test_check_counts_the_kept_classes(table: Path) -> None:
    report = tagseg.check(DataSource(table, classes=CHOICE))
    assert dict(zip(report.classes, report.counts, strict=True)) == {"vehicle": 2, "dog": 2}
    assert report.unlabeled == ("d", "e")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("dog,cow", "t.csv: unknown class 'cow'; known: bus, car, cat, dog"),
        ("dog,pet=dog", "classes: 'dog' is named twice; name each class once"),
        ("pet=,dog", "classes: 'pet=' lacks a name; write NAME, NEW=OLD or NEW=OLD|OLD"),
        ("=dog", "classes: '=dog' lacks a name"),
        (" , ", "no class is chosen; name those to keep with classes="),
    ],
)
def test_wrong_choice_is_an_error(table: Path, choice: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        DataSource(table, classes=choice).open()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
