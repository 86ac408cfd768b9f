import pytest
import torch

from tagseg.data import DataError, ImageTags, shapes
from tagseg.training.start import check_evidence


def with_tags(rows: list[list[int]], classes: list[str]) -> ImageTags:
    few = shapes(len(rows))
    return ImageTags(classes, few.names, torch.tensor(rows), few.pictures)


def test_a_class_without_a_picture() -> None:
    with pytest.raises(DataError, match=r"no picture is tagged 'cat', so it cannot be learned; add pictures of it or"):
        check_evidence(with_tags([[1, 0, 0], [0, 0, 1]], ["dog", "cat", "sofa"]))
    with pytest.raises(DataError, match=r"no picture is tagged 'dog' \(nor 1 other classes\)"):
        check_evidence(with_tags([[0, 0, 1], [0, 0, 1]], ["dog", "cat", "sofa"]))


def test_fewer_than_two_classes_that_tell_pictures_apart() -> None:
    with pytest.raises(DataError, match="only 1 class occurs in some pictures and not in others, and at least 2 must"):
        check_evidence(with_tags([[1, 0], [1, 1]], ["dog", "sofa"]))


def test_a_class_in_every_picture_is_warned_of() -> None:
    (warning,) = check_evidence(with_tags([[1, 0, 1], [1, 1, 0]], ["dog", "sofa", "cat"]))
    assert warning.startswith("class 'dog' occurs in every picture")
    assert check_evidence(with_tags([[1, 0], [0, 1]], ["dog", "sofa"])) == []
