"""Problems, warnings and notes that follow from the facts of a report."""

from typing import Any

import numpy as np
import pytest

from tagseg.data import CheckReport


def report(images: dict[str, int], **facts: Any) -> CheckReport:
    """Report of a dataset without flaws, apart from `facts`.

    Args:
        images: Number of images by their labels, separated by spaces.
        **facts: Other fields of the report.
    """
    classes = sorted({name for labels in images for name in labels.split()})
    rows = [[name in labels.split() for name in classes] for labels, count in images.items() for _ in range(count)]
    table = np.array(rows, int).reshape(len(rows), len(classes))
    counts = table.sum(0).tolist()
    values: dict[str, Any] = {
        "source": "photos.csv",
        "image_count": len(rows),
        "classes": classes,
        "counts": counts,
        "cooccurrence": (table.T @ table).tolist(),
        "validation": None,
        "validation_image_count": 20,
        "validation_counts": [2] * len(classes),
        "crop": 448,
        "sizes": {},
        "modes": {},
        "one_tag_per_row": False,
    }
    lists = CheckReport.model_fields.keys() - values.keys() - {"version"}
    return CheckReport(**{**values, **dict.fromkeys(lists, ()), **facts})


def kinds(report: CheckReport, level: str) -> set[str]:
    return {finding.kind for finding in report.findings if finding.level == level}


def message(report: CheckReport, kind: str) -> str:
    (text,) = [finding.message for finding in report.findings if finding.kind == kind]
    return text


def test_dataset_without_flaws_has_no_findings() -> None:
    good = report({"dog": 150, "cat": 150, "cat dog": 10})
    assert (good.findings, good.verdict) == ((), "fit")


@pytest.mark.parametrize(
    ("count", "level"), [(4, "problem"), (5, "warning"), (19, "warning"), (20, "note"), (99, "note"), (100, "")]
)
def test_level_of_a_class_follows_from_its_images(count: int, level: str) -> None:
    few = report({"dog": 150, "cat": 150, "owl": count})
    assert [finding.level for finding in few.findings] == [level] * bool(level)
    assert not level or "1 class (owl: " in message(few, "few-images-of-class")


def test_dataset_of_twelve_images_is_not_fit() -> None:
    small = report({"dog": 6, "cat": 6})
    assert small.verdict == "not fit"
    assert "12 images are too few to learn from; add images" in message(small, "few-images")
    assert report({"dog": 30, "cat": 30}).verdict == "fit with warnings"


def test_one_class_with_negatives_is_fit() -> None:
    one = report({"dog": 150, "": 150}, unlabeled=["a", "b"])
    assert one.verdict == "fit"
    assert "2 images (a, b) are without tags: negatives" in message(one, "negatives")


@pytest.mark.parametrize(
    ("negatives", "level", "kind"),
    [
        (0, "problem", "constant-class"),
        (4, "problem", "few-images-without-class"),
        (19, "warning", "few-images-without-class"),
    ],
)
def test_class_needs_images_without_it(negatives: int, level: str, kind: str) -> None:
    one = report({"dog": 150, "": negatives})
    assert kinds(one, level) == {kind}
    assert "add images without it, which need no tags" in message(one, kind)


def test_data_without_tags_or_images_are_problems() -> None:
    assert "no-tags" in kinds(report({"": 150}), "problem")
    assert kinds(report({}, validation_image_count=0), "problem") == {"no-images"}


def test_classes_that_always_occur_together_are_a_problem() -> None:
    pair = report({"dog": 150, "cart horse": 150})
    assert kinds(pair, "problem") == {"always-together"}
    assert "1 group of classes (cart and horse) is always together: nothing tells" in message(pair, "always-together")


def test_class_that_never_occurs_alone_is_a_warning() -> None:
    inside = report({"dog": 150, "horse": 150, "horse saddle": 150})
    assert kinds(inside, "warning") == {"never-alone"}
    assert "1 class (saddle with horse) is only in images that also have another class" in message(
        inside, "never-alone"
    )


def test_class_without_validation_images_is_a_warning() -> None:
    images = {"dog": 150, "cat": 150}
    assert "1 class (cat) is in none or all of the 20 validation images" in message(
        report(images, validation_counts=[0, 2]), "class-not-validated"
    )
    assert "1 class (dog)" in message(report(images, validation_counts=[3, 20]), "class-not-validated")
    assert kinds(report(images, validation_image_count=0), "problem") == {"no-validation"}


def test_rows_of_one_image_are_a_warning_unless_each_has_one_tag() -> None:
    images, rows = {"dog": 150, "cat": 150}, [("t.csv:2", "t.csv:9")]
    mixed = report(images, repeated_rows=rows)
    assert kinds(mixed, "warning") == {"repeated-rows"}
    assert "1 image (t.csv:2 = t.csv:9) is in several rows with different tags" in message(mixed, "repeated-rows")
    assert kinds(report(images, repeated_rows=rows, one_tag_per_row=True), "note") == {"repeated-rows"}


def test_names_of_labels_are_warnings() -> None:
    names = report({"dog": 150, "dogs": 150, "dogs,dog": 150, "none": 150})
    assert kinds(names, "warning") == {"spellings", "several-labels", "name-of-no-class"}
    assert "1 group of names (dog = dogs) is perhaps one class; use one name" in message(names, "spellings")


def test_copies_and_small_images_are_warnings() -> None:
    pair = [("a", "b")]
    facts = dict.fromkeys(
        ["duplicates", "contradictions", "near_duplicates", "validation_duplicates", "validation_near_duplicates"], pair
    )
    flawed = report({"dog": 150, "cat": 150}, smaller_than_crop=["a"], **facts)
    assert kinds(flawed, "warning") == {name.replace("_", "-") for name in facts} | {"small-images"}
    assert "1 image (a) is smaller than the crop of 448 pixels" in message(flawed, "small-images")
    assert "name validation images" in message(flawed, "near-duplicates")
    named = report({"dog": 150, "cat": 150}, validation="val.csv", near_duplicates=pair)
    assert "name validation images" not in message(named, "near-duplicates")


def test_problems_come_first() -> None:
    levels = [finding.level for finding in report({"dog": 3, "cat": 3, "owl owls": 50}).findings]
    assert levels == sorted(levels, key=["problem", "warning", "note"].index)
    assert set(levels) == {"problem", "warning", "note"}
