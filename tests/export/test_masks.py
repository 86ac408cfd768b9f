"""`export_masks`: every format is read back by tagseg itself; the other files of this folder ask the tools."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tagseg
from tagseg.data import DataSource
from tagseg.data.masks import MaskDataset
from tagseg.errors import ConfigError, DataError, TagsegError
from tagseg.export.masks import MaskFormat
from tests.data.small_datasets import write_image, write_mask, write_text
from tests.export.small_masks import CLASSES, NAMES, write_small_masks

FORMATS: tuple[MaskFormat, ...] = ("coco", "yolo", "cvat", "label-studio", "hf")


def source_of(export: Path, kind: MaskFormat) -> DataSource:
    """Source that reads an export; a person accepts the predictions in Label Studio."""
    if kind == "label-studio":
        tasks = json.loads((export / "tasks.json").read_text())
        for task in tasks:
            task["annotations"] = task.pop("predictions")
        return DataSource(write_text(export / "export.json", json.dumps(tasks)))
    return DataSource(export, split="train" if kind in ("coco", "hf") else None)


def assert_equal(masks: MaskDataset, expected: MaskDataset) -> None:
    assert masks.classes == expected.classes
    assert sorted(masks) == sorted(expected)
    for image_id, mask in expected.items():
        assert np.array_equal(masks[image_id], mask), image_id


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_comes_back(kind: MaskFormat, tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data")
    result = tagseg.export_masks(data, tmp_path / "out", format=kind)
    assert (result.images, result.without_masks, result.classes) == (len(NAMES), 0, CLASSES)
    source, expected = source_of(tmp_path / "out", kind), DataSource(data)
    assert_equal(source.open_masks(CLASSES), expected.open_masks())
    images, original = source.open(CLASSES), expected.open()
    assert sorted(images.image_ids) == sorted(original.image_ids)
    for index, image_id in enumerate(images.image_ids):
        position = original.image_ids.index(image_id)
        assert images.labels[index].tolist() == original.labels[position].tolist()
        assert np.array_equal(images.images.read(index), original.images.read(position))


@pytest.mark.parametrize("kind", FORMATS)
def test_classes_may_be_chosen_and_ignored_pixels_need_not_be(kind: MaskFormat, tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data", ignored=False)
    source = DataSource(data, classes=["no", f"b={CLASSES[0]}"])
    tagseg.export_masks(source, tmp_path / "out", format=kind)
    assert_equal(source_of(tmp_path / "out", kind).open_masks(["no", "b"]), source.open_masks())


def test_polygons_of_coco_and_zips_come_back(tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data")
    tagseg.export_masks(data, tmp_path / "polygons", format="coco", polygons=True)
    assert_equal(source_of(tmp_path / "polygons", "coco").open_masks(), DataSource(data).open_masks())
    tagseg.export_masks(data, tmp_path / "masks.zip", format="cvat", image_files="none")
    source = DataSource(tmp_path / "masks.zip", images=data / "images")
    assert_equal(source.open_masks(), DataSource(data).open_masks())
    assert len(source.open()) == len(NAMES)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "polygons", "masks.zip"}


def test_images_are_copied_linked_or_left_out(tmp_path: Path) -> None:
    data = write_small_masks(tmp_path / "data")
    for choice in ("copy", "link", "none"):
        tagseg.export_masks(data, tmp_path / choice, format="coco", image_files=choice)
    original = data / "images" / "dog.png"
    assert (tmp_path / "copy" / "train" / "dog.png").read_bytes() == original.read_bytes()
    assert (tmp_path / "link" / "train" / "dog.png").readlink() == original
    assert not (tmp_path / "none" / "train").exists()
    assert (
        len({(tmp_path / choice / "annotations/instances_train.json").read_text() for choice in ("copy", "none")}) == 1
    )
    url = "https://example.org/photos/"
    tagseg.export_masks(data, tmp_path / "urls", format="label-studio", image_files="none", image_url=url)
    urls = [task["data"]["image"] for task in json.loads((tmp_path / "urls" / "tasks.json").read_text())]
    assert f"{url}a%20folder/with%20spaces%2C%20%C3%BC%20and%20%E7%8A%AC.png" in urls


def test_predictions_are_exported_with_their_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = tagseg.build_model("test_resnet", ["cat", "dog", "no"], width=16).eval()
    model = tagseg.Predictor(network, tagseg.Predictor(network).settings.with_threshold(0.0), device="cpu")
    monkeypatch.chdir(write_small_masks(tmp_path / "data"))
    shutil.make_archive("more", "zip", "images/images")
    index = tagseg.predict_files(["images", "more.zip"], tmp_path / "predictions", model=model)
    tagseg.export_masks("../predictions", "out", format="yolo")
    masks = DataSource("out").open_masks(model.classes)
    assert len(masks) == len(NAMES) + 1
    for record in index["images"]:
        with Image.open(tmp_path / "predictions" / record["files"]["mask"]) as expected:
            assert np.array_equal(masks[record["name"]], np.array(expected)), record["name"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"predictions: the image .* was not found at images/.*; name its .* images="):
        tagseg.export_masks("predictions", "moved", format="coco")
    moved = DataSource("predictions", images="data/images", classes="pet=cat|dog", limit=3)
    assert tagseg.export_masks(moved, "moved", format="coco").classes == ("pet",)
    content = json.loads((tmp_path / "predictions" / "predictions.json").read_text())
    (tmp_path / "predictions" / "predictions.json").write_text(json.dumps({**content, "complete": False}))
    tagseg.export_masks(moved, "interrupted", format="coco")
    assert "was interrupted; the images that were predicted are exported" in caplog.text


def test_masks_have_the_size_of_their_images(tmp_path: Path) -> None:
    photo = tmp_path / "photos" / "a.jpg"
    write_image(photo, size=(30, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown rotated: 20 x 30
    Image.open(photo).save(photo, exif=exif)
    write_image(tmp_path / "photos" / "b.gif", size=(10, 12))
    write_mask(tmp_path / "masks" / "a.png", 1, size=(40, 60))
    write_mask(tmp_path / "masks" / "b.png", 1, size=(10, 12))
    source = DataSource(write_text(tmp_path / "t.csv", "a.jpg,cat\nb.gif,cat\n"), masks=tmp_path / "masks")
    tagseg.export_masks(source, tmp_path / "out", format="coco")
    content = json.loads((tmp_path / "out" / "annotations" / "instances_train.json").read_text())
    sizes = {image["file_name"]: (image["width"], image["height"]) for image in content["images"]}
    assert sizes == {"a.jpg": (20, 30), "b.png": (10, 12)}  # tools do not show GIF
    assert (tmp_path / "out" / "train" / "a.jpg").read_bytes() == photo.read_bytes()


def test_nothing_is_overwritten_and_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    data, out = write_small_masks(tmp_path / "data"), tmp_path / "out"
    write_text(out / "mine.txt", "mine")
    with pytest.raises(ConfigError, match="out: exists, and is not overwritten; choose another place with out="):
        tagseg.export_masks(data, out, format="coco")
    (out / "mine.txt").unlink()
    (data / "masks" / "dog.png").write_bytes(b"damaged")
    table = write_text(tmp_path / "t.csv", "labels.v2.png,cat\ndog.png,cat\n")
    with pytest.raises(DataError, match=r"dog.png: is not a mask that can be read"):
        tagseg.export_masks(DataSource(table, data / "images", masks=data / "masks"), out, format="coco")
    assert list(out.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"data", "out", "t.csv"}
    write_text(tmp_path / "out.tagseg-part" / "content" / "annotations" / "left by a killed process", "")
    write_text(tmp_path / "out.tagseg-part" / ".lock", "")
    tagseg.export_masks("shapes:4", out, format="coco")
    assert len(DataSource(out, split="train").open_masks()) == 4
    assert not (tmp_path / "out.tagseg-part").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "voc"}, "unknown format 'voc'; known: coco, cvat, hf, label-studio, yolo"),
        ({"format": "yolo", "polygons": True}, "polygons are a choice of the format coco, not of yolo"),
        ({"format": "hf", "image_files": "none"}, "the format hf needs image files beside its masks"),
        ({"format": "coco", "image_files": "move"}, "unknown choice of image files 'move'; known: copy, link, none"),
        ({"format": "coco", "image_url": "https://x"}, "URLs of images are a choice of the format label-studio"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        tagseg.export_masks("shapes:2", tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("ignored", "coco", "the class 'ignored' has the name of ignored pixels; rename it with classes="),
        ("a:b", "cvat", "the class 'a:b' cannot be listed in labelmap.txt: .*; rename it with classes="),
        ("#1", "cvat", "the class '#1' cannot be listed"),
        ("background", "cvat", "the class 'background' cannot be listed"),
    ],
)
def test_names_that_a_format_cannot_hold_are_refused(name: str, kind: MaskFormat, message: str, tmp_path: Path) -> None:
    write_image(tmp_path / "images" / "a.png")
    write_mask(tmp_path / "masks" / "a.png", 1)
    write_text(tmp_path / "classes.txt", name)
    with pytest.raises(TagsegError, match=message):
        tagseg.export_masks(tmp_path, tmp_path / "out", format=kind)
    source = DataSource(tmp_path, classes=f"c={name}")
    assert tagseg.export_masks(source, tmp_path / "out", format=kind).classes == ("c",)
