import pytest
import torch

from tagseg.data import DataError, ImageDataset, shapes
from tagseg.training.start import check_evidence


def with_tags(rows: list[list[int]], classes: list[str]) -> ImageDataset:
    few = shapes(len(rows))
    return ImageDataset(classes, few.image_ids, torch.tensor(rows), few.images)


def test_a_class_without_a_image() -> None:
    with pytest.raises(DataError, match=r"no image is tagged 'cat', so it cannot be learned; add images of it or"):
        check_evidence(with_tags([[1, 0, 0], [0, 0, 1]], ["dog", "cat", "sofa"]))
    with pytest.raises(DataError, match=r"no image is tagged 'dog' \(nor 1 other classes\)"):
        check_evidence(with_tags([[0, 0, 1], [0, 0, 1]], ["dog", "cat", "sofa"]))


def test_fewer_than_two_classes_that_tell_images_apart() -> None:
    with pytest.raises(DataError, match="only 1 class occurs in some images and not in others, and at least 2 must"):
        check_evidence(with_tags([[1, 0], [1, 1]], ["dog", "sofa"]))


def test_a_class_in_every_image_is_warned_of() -> None:
    (warning,) = check_evidence(with_tags([[1, 0, 1], [1, 1, 0]], ["dog", "sofa", "cat"]))
    assert warning.startswith("class 'dog' occurs in every image")
    assert check_evidence(with_tags([[1, 0], [0, 1]], ["dog", "sofa"])) == []
