"""The generated dataset."""

import numpy as np
import pytest
import torch

from tagseg.data import DataError, shapes, shapes_masks


def test_image_depends_only_on_seed_split_and_index() -> None:
    few, many = shapes(3), shapes(8)
    for i in range(3):
        assert torch.equal(few[i][0], many[i][0])
        assert torch.equal(few[i][1], many[i][1])
    assert not torch.equal(few[0][0], shapes(1, seed=1)[0][0])


def test_splits_share_no_image() -> None:
    splits = [shapes(40, split=split) for split in ("train", "val", "test")]
    assert len({split[i][0].numpy().tobytes() for split in splits for i in range(40)}) == 120
    assert len({name for split in splits for name in split.image_ids}) == 120


def test_labels_are_the_classes_in_the_mask() -> None:
    dataset, masks = shapes(60), shapes_masks(60)
    for i, image_id in enumerate(dataset.image_ids):
        visible = set(np.unique(masks[image_id])) - {0}
        assert visible == {int(k) + 1 for k in dataset.labels[i].nonzero()}


def test_every_labeled_class_is_visible() -> None:
    masks = shapes_masks(150)
    for mask in masks.values():
        _, areas = np.unique(mask[mask > 0], return_counts=True)
        assert areas.min() > 0.005 * mask.size


def test_classes_are_balanced_and_images_show_one_to_three() -> None:
    labels = shapes(600).labels
    assert labels.mean(0).min() > 0.27
    assert labels.mean(0).max() < 0.40
    assert set(labels.sum(1).tolist()) == {1.0, 2.0, 3.0}


def test_color_alone_does_not_identify_the_class() -> None:
    """A nearest-mean classifier on color is right less than two times in three."""
    dataset, masks = shapes(300), shapes_masks(300)
    colors, class_values = [], []
    for i, image_id in enumerate(dataset.image_ids):
        pixels, mask = dataset[i][0].numpy(), masks[image_id]
        for value in np.unique(mask[mask > 0]):
            colors.append(pixels[:, mask == value].mean(1))
            class_values.append(value)
    color, target = np.array(colors), np.array(class_values)
    means = np.array([color[::2][target[::2] == k].mean(0) for k in range(1, 7)])
    predicted = 1 + np.linalg.norm(color[1::2, None] - means[None], axis=2).argmin(1)
    assert np.mean(predicted == target[1::2]) < 2 / 3


def test_scene_does_not_depend_on_the_image_size() -> None:
    small, large = shapes(20, size=64), shapes(20, size=128)
    assert torch.equal(small.labels, large.labels)
    assert small[0][0].shape == (3, 64, 64)
    coarse, fine = shapes_masks(20, size=64), shapes_masks(20, size=128)
    agreement = [np.mean(coarse[name] == fine[name][::2, ::2]) for name in coarse]
    assert min(agreement) > 0.95


def test_masks_are_the_same_in_every_version() -> None:
    mask = shapes_masks(1, seed=3)["train-00000"]
    assert np.bincount(mask.ravel(), minlength=7).tolist() == pytest.approx([5967, 0, 0, 826, 0, 952, 1471], abs=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"split": "vla"}, "Did you mean 'val'"), ({"count": 0}, "count >= 1"), ({"size": 4}, "size >= 32")],
)
def test_invalid_arguments_are_data_errors(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        shapes(**arguments)  # type: ignore[arg-type]
