"""Facts that `check` finds in a dataset's files, and how a report is printed."""

import io
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from PIL import Image, ImageEnhance
from rich.console import Console

import tagseg
from tagseg import _progress
from tagseg.data import CheckReport, DataSource, check, shapes
from tagseg.data.check import Thumbnails, find_copies
from tagseg.data.images import Pixels, decode, thumbnail
from tests.data.small_datasets import BLUE, GREEN, RED, write_coco, write_image, write_text
from tools.schemas import CHECK_SCHEMA


def write_table(root: Path, rows: dict[str, str], name: str = "t.csv") -> Path:
    return write_text(root / name, "image,labels\n" + "".join(f"{image},{labels}\n" for image, labels in rows.items()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", RED, (10, 10))
    write_image(tmp_path / "b.png", GREEN, (20, 10))
    write_image(tmp_path / "c.jpg", BLUE, (40, 30))
    return tmp_path


def kinds(report: CheckReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def test_valid_dataset_is_fit() -> None:
    report = tagseg.check("shapes:350", recipe="shapes", val=DataSource("shapes:60", split="val"))
    assert (report.findings, report.verdict) == ((), "fit")
    assert (report.image_count, report.validation_image_count) == (350, 60)
    assert report.modes == {"RGB": 350}


def test_report_counts_classes_sizes_and_modes(folder: Path) -> None:
    report = tagseg.check(write_table(folder, {"a.png": "cat;dog", "b.png": "dog", "c.jpg": "cow"}))
    assert dict(zip(report.classes, report.counts, strict=True)) == {"cat": 1, "cow": 1, "dog": 2}
    assert report.cooccurrence == ((1, 0, 1), (0, 1, 0), (1, 0, 2))
    assert report.sizes == {"smallest": (10, 10), "median": (20, 10), "largest": (40, 30)}
    assert report.modes == {"RGB": 3}


def test_missing_and_unreadable_files_are_problems(folder: Path) -> None:
    write_text(folder / "b.png", "broken")
    report = tagseg.check(write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow", "gone.png": "dog"}))
    assert report.image_count == 3
    assert [line.endswith("t.csv:5: gone.png") for line in report.missing] == [True]
    assert "b.png: is not an image" in report.unreadable[0]
    assert any("1 listed image (" in line and "missing; add the files" in line for line in report.problems)
    assert any("1 file (" in line and "unreadable; replace or remove" in line for line in report.problems)


def test_dataset_without_images_is_a_problem(folder: Path) -> None:
    report = tagseg.check(write_table(folder, {"x.png": "cat", "y.png": "dog"}))
    assert report.problems[0].startswith("no image was found")
    assert (report.sizes, report.validation_image_count) == ({}, 0)


def test_class_of_no_image_is_a_problem(tmp_path: Path) -> None:
    report = tagseg.check(write_coco(tmp_path, [{"image_id": 7, "category_id": 3}]))
    assert report.counts == (0, 1)
    assert any("1 class (cat) is in no image and cannot be learned" in line for line in report.problems)
    assert report.unlabeled == ("two",)


def test_images_are_compared_with_the_recipe_s_crop(folder: Path) -> None:
    table = write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "dog"})
    assert tagseg.check(table).smaller_than_crop == ("a", "b", "c")
    assert tagseg.check(table, crop=32).smaller_than_crop == ("a", "b")
    assert tagseg.check(table, recipe="wideresnet38").crop == 321


def test_validation_images_are_those_that_training_holds_out() -> None:
    source = DataSource("shapes:50")
    report = tagseg.check(source, fraction=0.2)
    assert report.validation_image_count >= 10
    assert (report.validation, min(report.validation_counts) > 0) == (None, True)


def test_named_validation_images_are_checked_too(folder: Path) -> None:
    write_text(folder / "broken.png", "broken")
    write_image(folder / "leak.png", GREEN, (20, 10))
    train = write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow"})
    val = write_table(folder, {"leak.png": "dog", "broken.png": "dog", "gone.png": "cat"}, "val.csv")
    report = tagseg.check(train, val=val)
    assert report.validation == str(val)
    assert (report.validation_image_count, report.validation_counts) == (2, (0, 0, 2))
    assert report.validation_duplicates == (("b", "leak"),)
    assert "broken.png" in report.unreadable[0]
    assert "val.csv:4: gone.png" in report.missing[0]
    wrong = write_table(folder, {"c.jpg": "zebra"}, "wrong.csv")
    with pytest.raises(tagseg.TagsegError, match="wrong.csv:2: unknown class 'zebra'"):
        tagseg.check(train, val=wrong)


def test_equal_files_are_found(folder: Path) -> None:
    write_image(folder / "copy.png", RED, (10, 10))
    train = write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow", "copy.png": "dog"})
    report = tagseg.check(train)
    assert report.duplicates == report.contradictions == (("a", "copy"),)
    assert {"duplicates", "contradictions"} <= kinds(report)


def test_almost_equal_images_are_found_within_and_across_splits(tmp_path: Path) -> None:
    images = DataSource("shapes:6").open().images
    for index in range(6):
        pixels = images.read(index)
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
        Image.fromarray(pixels).resize((60, 60)).save(tmp_path / f"{index}-small.jpg", quality=60)
    train = {**{f"{index}.png": "cat" for index in range(4)}, "2-small.jpg": "cat"}
    report = tagseg.check(
        write_table(tmp_path, train), val=write_table(tmp_path, {"0-small.jpg": "cat", "5.png": "cat"}, "val.csv")
    )
    assert report.near_duplicates == (("2-small", "2"),)
    assert report.validation_near_duplicates == (("0", "0-small"),)


def test_rows_of_one_image_are_told_apart_from_one_tag_per_row(folder: Path) -> None:
    long = write_text(folder / "long.csv", "image,label\na.png,cat\na.png,dog\nb.png,dog\nb.png,dog\nc.jpg,\n")
    report = tagseg.check(long)
    assert report.repeated_rows == ((f"{long}:2", f"{long}:3"),)
    assert report.one_tag_per_row
    for rows in ("a.png,cat;dog\na.png,dog", "a.png,cat\na.png,", "a.png,cat\na.png,dog\nb.png,cat;dog"):
        report = tagseg.check(write_text(folder / "wide.csv", f"image,labels\n{rows}\nc.jpg,cow\n"))
        assert len(report.repeated_rows) == 1
        assert not report.one_tag_per_row


def test_json_fits_the_published_schema(folder: Path) -> None:
    schema = json.loads(CHECK_SCHEMA.read_text(encoding="utf-8"))
    for report in (
        tagseg.check(write_table(folder, {"a.png": "cat", "b.png": "dog", "gone.png": "dog"})),
        tagseg.check("shapes:30", val="shapes:20"),
    ):
        content = json.loads(report.to_json())
        jsonschema.validate(content, schema)
        assert (content["version"], content["verdict"]) == (1, report.verdict)
        assert [entry["message"] for entry in content["findings"] if entry["level"] == "problem"] == report.problems


def test_printed_report_ends_with_the_verdict(folder: Path) -> None:
    rows = {"a.png": "cat;[red]dog", "b.png": "[red]dog", "c.jpg": "", "gone.png": "cat"}
    report = tagseg.check(write_table(folder, rows))
    text = io.StringIO()
    report.print(Console(file=text, width=160))
    for expected in ("[red]dog", "66.7%", "cat (1)", "40 x 30", "problem", "gone.png", "warning", "note"):
        assert expected in text.getvalue()
    assert text.getvalue().endswith(f"not fit for training: {len(report.problems)} problems\n")


PHOTOS = [
    Image.fromarray(decode(file.read_bytes(), file.name))
    for file in (resources.files("tagseg") / "photos").iterdir()
    if file.name.endswith(".jpg")
]


def thumbnails(*images: Image.Image | Pixels) -> Thumbnails:
    return np.stack([thumbnail(np.asarray(image)) for image in images])


def compressed(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=20)
    return Image.open(file)


@pytest.mark.parametrize(
    "change",
    [
        compressed,
        lambda image: image.resize((image.width // 3, image.height // 3)),
        lambda image: ImageEnhance.Brightness(image).enhance(0.7),
        lambda image: image.convert("L").convert("RGB"),
        lambda image: image.crop((3, 3, image.width - 3, image.height - 3)),
    ],
    ids=["compressed", "scaled", "darker", "gray", "cropped"],
)
def test_changed_copies_are_found(change: Callable[[Image.Image], Image.Image]) -> None:
    copies = thumbnails(*map(change, PHOTOS))
    assert find_copies(copies, thumbnails(*PHOTOS)) == {0: 0, 1: 1, 2: 2}
    assert find_copies(np.concatenate([thumbnails(*PHOTOS), copies])) == {3: 0, 4: 1, 5: 2}


def test_other_images_are_not_copies() -> None:
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 255, 90, dtype=np.uint8)[:, None, None]
    scenes = shapes(80)
    images: list[Image.Image | Pixels] = [
        *PHOTOS,
        *(scenes.images.read(i) for i in range(len(scenes))),
        *(np.full((60, 90, 3), value, np.uint8) for value in (0, 0, 7, 255)),  # one color
        *(np.broadcast_to(ramp // part, (90, 90, 3)) for part in (1, 2, 3)),  # skies
        *(rng.integers(118, 122, (64, 64, 3), dtype=np.uint8) for _ in range(20)),  # noise
    ]
    assert find_copies(thumbnails(*images)) == {}


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    images = thumbnails(*PHOTOS, *PHOTOS, *map(compressed, PHOTOS))
    whole = find_copies(images), find_copies(images[3:], images[:3])
    monkeypatch.setattr(check, "_BLOCK", 2)
    assert (find_copies(images), find_copies(images[3:], images[:3])) == whole
    assert find_copies(images[:0]) == find_copies(images[:0], images) == find_copies(images, images[:0]) == {}


def test_progress_counts_every_comparison(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "_BLOCK", 2)
    monkeypatch.setattr(_progress, "SECONDS_TO_FIRST_LINE", 0.0)
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", 0.0)
    find_copies(thumbnails(*PHOTOS), progress=True)
    assert "Comparing images, block 3/3" in capsys.readouterr().err
    find_copies(thumbnails(PHOTOS[0]), thumbnails(*PHOTOS), progress=True)
    assert "Comparing images, block 2/2" in capsys.readouterr().err
