import pytest
import torch

from tagseg.data import DataError, ImageDataset, shapes
from tagseg.training.preflight import check_label_evidence, few_image_warnings


def with_tags(rows: list[list[int]], classes: list[str]) -> ImageDataset:
    data = shapes(len(rows))
    return ImageDataset(classes, data.image_ids, torch.tensor(rows), data.images)


def test_class_without_images_is_refused() -> None:
    with pytest.raises(DataError, match=r"no image is tagged 'cat', so it cannot be learned; add images of it or"):
        check_label_evidence(with_tags([[1, 0, 0], [0, 0, 1]], ["dog", "cat", "sofa"]))
    with pytest.raises(DataError, match=r"no image is tagged 'dog' \(nor 1 more\)"):
        check_label_evidence(with_tags([[0, 0, 1], [0, 0, 1]], ["dog", "cat", "sofa"]))


def test_labels_that_no_image_lacks_are_refused() -> None:
    with pytest.raises(DataError, match="every image is tagged 'dog': .* add images without it, which need no tags"):
        check_label_evidence(with_tags([[1], [1]], ["dog"]))
    with pytest.raises(DataError, match="every image has all classes: .* add images that lack some"):
        check_label_evidence(with_tags([[1, 1], [1, 1]], ["dog", "sofa"]))


def test_one_class_suffices_if_some_images_lack_it() -> None:
    assert check_label_evidence(with_tags([[1], [0]], ["dog"])) == []


def test_class_in_every_image_gives_a_warning() -> None:
    (warning,) = check_label_evidence(with_tags([[1, 0, 1], [1, 1, 0]], ["dog", "sofa", "cat"]))
    assert warning.startswith("class 'dog' occurs in every image")
    assert check_label_evidence(with_tags([[1, 0], [0, 1]], ["dog", "sofa"])) == []


def test_few_images_give_warnings() -> None:
    few = with_tags([[1, 0]] * 9 + [[0, 1]] * 3, ["dog", "cat"])
    assert few_image_warnings(few) == [
        "12 images are too few to learn from; add images, 20 at the least",
        "1 class (cat: 3) with fewer than 5 images, too few to learn from; add images or remove the class",
    ]
    assert few_image_warnings(with_tags([[1, 0], [0, 1]] * 10, ["dog", "cat"])) == []
