"""`check` finds what would spoil a training run before it starts."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tagseg.data import check, open_dataset, shapes
from tests.data.writing import BLUE, GREEN, RED, write_image, write_text


def table(root: Path, rows: dict[str, str], name: str = "t.csv") -> Path:
    return write_text(root / name, "image,labels\n" + "".join(f"{image},{labels}\n" for image, labels in rows.items()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", RED, (10, 10))
    write_image(tmp_path / "b.png", GREEN, (20, 10))
    write_image(tmp_path / "c.jpg", BLUE, (40, 30))
    return tmp_path


def test_a_good_dataset_has_no_problems() -> None:
    report = check("shapes:60")
    assert report.problems == []
    assert report.warnings == []
    assert report.image_count == 60
    assert report.modes == {"RGB": 60}


def test_counts_sizes_and_modes(folder: Path) -> None:
    report = check(table(folder, {"a.png": "cat dog", "b.png": "dog", "c.jpg": "cow"}))
    assert dict(zip(report.classes, report.counts, strict=True)) == {"cat": 1, "cow": 1, "dog": 2}
    assert report.cooccurrence == ((1, 0, 1), (0, 1, 0), (1, 0, 2))
    assert report.sizes == {"smallest": (10, 10), "median": (20, 10), "largest": (40, 30)}
    assert report.modes == {"RGB": 3}
    assert report.problems == []


def test_missing_and_unreadable_files(folder: Path) -> None:
    write_text(folder / "b.png", "broken")
    report = check(table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow", "gone.png": "dog"}))
    assert report.image_count == 3
    assert [line.endswith("t.csv:5: gone.png") for line in report.missing] == [True]
    assert "b.png: is not an image" in report.unreadable[0]
    assert any(
        "1 listed image (" in line and "missing; add the files or remove the rows" in line for line in report.problems
    )
    assert any("1 file (" in line and "unreadable; replace or remove" in line for line in report.problems)


def test_nothing_found(folder: Path) -> None:
    report = check(table(folder, {"x.png": "cat", "y.png": "dog"}))
    assert report.problems[0].startswith("no image was found")
    assert report.sizes == {}


def test_classes_that_never_or_always_occur(folder: Path) -> None:
    rows = {"a.png": "cat sky", "b.png": "dog sky", "c.jpg": "sky"}
    report = check(table(folder, rows), classes=["cat", "dog", "sky", "unicorn"])
    assert (report.never, report.always) == (("unicorn",), ("sky",))
    assert any("'unicorn' occurs in no image, so it is never learned" in line for line in report.problems)
    assert any("'sky' occurs in every image: nothing shows what it is not" in line for line in report.problems)
    assert len(report.problems) == 2


def test_one_class_is_not_enough_evidence(folder: Path) -> None:
    report = check(table(folder, {"a.png": "cat", "b.png": "cat", "c.jpg": ""}))
    assert any("only 1 of the classes occurs in some images and not in others" in line for line in report.problems)
    assert report.unlabelled == ("c",)
    assert any("without labels" in line for line in report.warnings)


def test_labels_that_are_written_in_several_ways(folder: Path) -> None:
    report = check(table(folder, {"a.png": "Potted plant;dog", "b.png": "dog;potted-plant", "c.jpg": '"dog,cat"'}))
    assert report.alike == (("Potted plant", "potted-plant"),)
    assert report.joined == ("dog,cat",)
    assert not check(table(folder, {"a.png": "1-1 -1", "b.png": "11 1", "c.jpg": "-1 1"}), separator=" ").alike
    assert any(
        "1 group (Potted plant = potted-plant) is of classes that differ in case or spaces alone" in line
        for line in report.warnings
    )
    assert any("1 class (dog,cat) is perhaps of several labels" in line for line in report.warnings)


def test_too_few_images_to_hold_some_out(folder: Path) -> None:
    few = check(table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow"}))
    assert any("every image is the only one of some class" in line for line in few.problems)
    enough = check(table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "dog"}))
    assert enough.problems == []


def test_duplicates_inside_and_across_splits(folder: Path) -> None:
    write_image(folder / "copy.png", RED, (10, 10))
    write_image(folder / "leak.png", GREEN, (20, 10))
    train = table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow", "copy.png": "dog"})
    val = table(folder, {"leak.png": "dog"}, "val.csv")
    report = check(train, against=[val])
    assert report.duplicates == report.contradictions == (("a", "copy"),)
    assert report.shared == (("b", f"{val}: leak"),)
    assert check(train, against=[open_dataset(val)]).shared == (("b", "leak"),)
    assert [line for line in report.warnings if "different labels" in line]
    assert [line for line in report.warnings if "another split" in line]
    assert report.problems == []


def test_an_open_dataset_can_be_checked() -> None:
    assert check(shapes(40).subset(range(30)), against=[shapes(20, split="val")]).image_count == 30


def test_the_report_as_json(folder: Path) -> None:
    report = check(table(folder, {"a.png": "cat", "b.png": "dog", "gone.png": "dog"}))
    content = json.loads(report.to_json())
    assert content["counts"] == [1, 1]
    assert content["problems"] == report.problems


def test_the_report_for_people(folder: Path) -> None:
    report = check(table(folder, {"a.png": "cat;[red]dog", "b.png": "[red]dog", "c.jpg": "", "gone.png": "cat"}))
    text = io.StringIO()
    report.print(Console(file=text, width=160))
    for expected in ("[red]dog", "66.7%", "cat (1)", "40 x 30", "problem", "gone.png", "warning"):
        assert expected in text.getvalue()
