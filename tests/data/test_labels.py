"""Labels of a row: what separates them is shown by the rows, and names never fall apart."""

import pytest
from hypothesis import given, strategies as st

from tagseg.data import DataError
from tagseg.data.labels import choose_separator, split_labels

names = st.text("abc xyz-_é", min_size=1, max_size=8).map(str.strip).filter(bool)


@given(rows=st.lists(st.sets(names), min_size=1), separator=st.sampled_from([";", "|"]))
def test_joined_labels_are_split_again(rows: list[set[str]], separator: str) -> None:
    rows = [*rows, {"one", "two"}]  # only a row with several labels shows the separator
    cells = [separator.join(sorted(row)) for row in rows]
    assert [set(split_labels(cell, choose_separator(cells, "t.csv"))) for cell in cells] == rows


@given(labels=st.sets(names, min_size=1))
def test_names_of_a_table_with_one_label_per_row_do_not_fall_apart(labels: set[str]) -> None:
    words = [word for label in labels for word in label.split()]
    cells = [*labels, *(word for word in words if words.count(word) > 1 and word not in labels)]
    try:
        separator = choose_separator(cells, "t.csv")
    except DataError:
        return
    # Texts are only split where each of their words is a label of its own.
    split = {label: split_labels(label, separator) for label in cells}
    assert all(parts == {label} or parts <= set(cells) for label, parts in split.items())


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["traffic light", "red car"], None),
        (["traffic light", "red car", "traffic light", ""], None),
        (["cat", "dog", ""], None),
        (["cat dog", "dog", "cat"], " "),
        (["traffic light;dog", "hot dog, with mustard"], ";"),
        (["traffic light|dog", "dog"], "|"),
        (["traffic light, dog", "dog", "dog, red car", "red car"], ","),
        ([["traffic light"], ["light"]], None),
    ],
)
def test_rows_show_the_separator(cells: list[str], separator: str | None) -> None:
    assert choose_separator(cells, "t.csv") == separator


@pytest.mark.parametrize(
    "cells",
    [
        ["hot dog", "dog"],
        ["red car", "red bus"],
        ["teddy bear", "bear", "cell phone"],
        ["tench, Tinca tinca", "goldfish, Carassius auratus"],
    ],
)
def test_two_possible_readings_are_an_error_unless_the_classes_are_known(cells: list[str]) -> None:
    with pytest.raises(DataError, match="t.csv: labels can be read in two ways: separated by"):
        choose_separator(cells, "t.csv")
    assert choose_separator(cells, "t.csv", cells) is None
