"""Problems and warnings of `check`."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tagseg.data import DataSource, check, open_dataset, shapes
from tests.data.small_datasets import BLUE, GREEN, RED, write_image, write_text


def write_table(root: Path, rows: dict[str, str], name: str = "t.csv") -> Path:
    return write_text(root / name, "image,labels\n" + "".join(f"{image},{labels}\n" for image, labels in rows.items()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", RED, (10, 10))
    write_image(tmp_path / "b.png", GREEN, (20, 10))
    write_image(tmp_path / "c.jpg", BLUE, (40, 30))
    return tmp_path


def test_valid_dataset_has_no_problems() -> None:
    report = check("shapes:60")
    assert report.problems == []
    assert report.warnings == []
    assert report.image_count == 60
    assert report.modes == {"RGB": 60}


def test_report_counts_classes_sizes_and_modes(folder: Path) -> None:
    report = check(write_table(folder, {"a.png": "cat;dog", "b.png": "dog", "c.jpg": "cow"}))
    assert dict(zip(report.classes, report.counts, strict=True)) == {"cat": 1, "cow": 1, "dog": 2}
    assert report.cooccurrence == ((1, 0, 1), (0, 1, 0), (1, 0, 2))
    assert report.sizes == {"smallest": (10, 10), "median": (20, 10), "largest": (40, 30)}
    assert report.modes == {"RGB": 3}
    assert report.problems == []


def test_missing_and_unreadable_files_are_problems(folder: Path) -> None:
    write_text(folder / "b.png", "broken")
    report = check(write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow", "gone.png": "dog"}))
    assert report.image_count == 3
    assert [line.endswith("t.csv:5: gone.png") for line in report.missing] == [True]
    assert "b.png: is not an image" in report.unreadable[0]
    assert any(
        "1 listed image (" in line and "missing; add the files or remove the rows" in line for line in report.problems
    )
    assert any("1 file (" in line and "unreadable; replace or remove" in line for line in report.problems)


def test_dataset_without_images_is_a_problem(folder: Path) -> None:
    report = check(write_table(folder, {"x.png": "cat", "y.png": "dog"}))
    assert report.problems[0].startswith("no image was found")
    assert report.sizes == {}


def test_classes_in_no_image_or_in_every_image_are_problems(folder: Path) -> None:
    rows = {"a.png": "cat sky", "b.png": "dog sky", "c.jpg": "sky"}
    report = check(write_table(folder, rows), classes=["cat", "dog", "sky", "unicorn"])
    assert (report.absent_classes, report.constant_classes) == (("unicorn",), ("sky",))
    assert any("'unicorn' occurs in no image, so it cannot be learned" in line for line in report.problems)
    assert any(
        "'sky' occurs in every image: without images that lack it, its masks may cover anything" in line
        for line in report.problems
    )
    assert len(report.problems) == 2


def test_at_least_two_classes_must_distinguish_images(folder: Path) -> None:
    report = check(write_table(folder, {"a.png": "cat", "b.png": "cat", "c.jpg": ""}))
    assert any("only 1 of the classes occurs in some images and not in others" in line for line in report.problems)
    assert report.unlabeled == ("c",)
    assert any("without labels" in line for line in report.warnings)


def test_different_spellings_of_a_label_are_warnings(folder: Path) -> None:
    report = check(
        write_table(folder, {"a.png": "Potted plant;dog", "b.png": "dog;potted-plant", "c.jpg": '"dog,cat"'})
    )
    assert report.similar_classes == (("Potted plant", "potted-plant"),)
    assert report.unsplit_classes == ("dog,cat",)
    numbers = write_table(folder, {"a.png": "1-1 -1", "b.png": "11 1", "c.jpg": "-1 1"})
    assert not check(DataSource(numbers, separator=" ")).similar_classes
    assert any(
        "1 group (Potted plant = potted-plant) is of classes that differ in case or spaces alone" in line
        for line in report.warnings
    )
    assert any("1 class (dog,cat) is perhaps several labels" in line for line in report.warnings)


def test_at_least_one_image_must_be_held_out(folder: Path) -> None:
    few = check(write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow"}))
    assert any("every image is the only one of some class" in line for line in few.problems)
    enough = check(write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "dog"}))
    assert enough.problems == []


def test_duplicates_within_and_across_splits_are_warnings(folder: Path) -> None:
    write_image(folder / "copy.png", RED, (10, 10))
    write_image(folder / "leak.png", GREEN, (20, 10))
    train = write_table(folder, {"a.png": "cat", "b.png": "dog", "c.jpg": "cow", "copy.png": "dog"})
    val = write_table(folder, {"leak.png": "dog"}, "val.csv")
    report = check(train, against=[val])
    assert report.duplicates == report.contradictions == (("a", "copy"),)
    assert report.shared == (("b", f"{val}: leak"),)
    assert check(train, against=[open_dataset(val)]).shared == (("b", "leak"),)
    assert [line for line in report.warnings if "different labels" in line]
    assert [line for line in report.warnings if "another split" in line]
    assert report.problems == []


def test_open_dataset_can_be_checked() -> None:
    assert check(shapes(40).subset(range(30)), against=[shapes(20, split="val")]).image_count == 30


def test_json_contains_counts_and_problems(folder: Path) -> None:
    report = check(write_table(folder, {"a.png": "cat", "b.png": "dog", "gone.png": "dog"}))
    content = json.loads(report.to_json())
    assert content["counts"] == [1, 1]
    assert content["problems"] == report.problems


def test_printed_report_contains_counts_and_problems(folder: Path) -> None:
    report = check(write_table(folder, {"a.png": "cat;[red]dog", "b.png": "[red]dog", "c.jpg": "", "gone.png": "cat"}))
    text = io.StringIO()
    report.print(Console(file=text, width=160))
    for expected in ("[red]dog", "66.7%", "cat (1)", "40 x 30", "problem", "gone.png", "warning"):
        assert expected in text.getvalue()
