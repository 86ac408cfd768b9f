import pytest

from tagseg.data.label_names import names_of_no_class, several_labels, spellings


@pytest.mark.parametrize(
    "group",
    [
        ("Potted plant", "potted-plant"),
        ("Dog", "dog"),
        ("dog", "dogs"),
        ("bus", "buses"),
        ("puppies", "puppy"),
        ("traffic light", "traffic lights"),
        ("bicycle", "bicylce"),
        ("motorbike", "motorbyke"),
        ("color", "colour"),
        ("red scarf", "red scarff"),
    ],
)
def test_spellings_of_a_name_are_found(group: tuple[str, ...]) -> None:
    assert [set(found) for found in spellings(["sheep", *group, "zebra"])] == [set(group)]


@pytest.mark.parametrize(
    "names",
    [
        ("cat", "car", "bat", "cart"),
        ("horse", "house", "mouse"),
        ("train", "brain"),
        ("class 1", "class 2"),
        ("defect a", "defect b", "defect_c"),
        ("1-1", "11", "-1", "1"),
        ("normal", "abnormal"),
        ("red car", "car"),
    ],
)
def test_different_names_are_not_spellings(names: tuple[str, ...]) -> None:
    assert spellings(names) == ()


def test_labels_with_another_separator_are_found() -> None:
    assert several_labels(["dog", "cat", "dog,cat", "cow|dog", "rock/pop"]) == ("dog,cat", "cow|dog")


def test_names_that_say_that_a_class_is_absent_are_found() -> None:
    names = ["dog", "no dog", "No-Dog", "background", "none", "no parking", "nonsense"]
    assert names_of_no_class(names) == ("no dog", "No-Dog", "background", "none")
    assert names_of_no_class(["no", "yes"]) == ("no",)
    assert names_of_no_class(["0", "1"]) == ("0",)
    assert not names_of_no_class(["0", "1", "2"])
