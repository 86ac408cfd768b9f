"""The built-in dataset: the same pictures everywhere, exact masks, fair tags."""

import time

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tagseg.data import DataError, shapes, shapes_truth


def test_a_picture_depends_on_seed_split_and_index_alone() -> None:
    few, many = shapes(3), shapes(8)
    for i in range(3):
        assert torch.equal(few[i][0], many[i][0])
        assert torch.equal(few[i][1], many[i][1])
    assert not torch.equal(few[0][0], shapes(1, seed=1)[0][0])


def test_splits_share_no_picture() -> None:
    train, val = shapes(40), shapes(40, split="val")
    assert not {train[i][0].numpy().tobytes() for i in range(40)} & {val[i][0].numpy().tobytes() for i in range(40)}
    assert not set(train.names) & set(val.names)


def test_tags_are_exactly_the_kinds_in_the_mask() -> None:
    dataset, truth = shapes(60), shapes_truth(60)
    for i, name in enumerate(dataset.names):
        visible = set(np.unique(truth[name])) - {0}
        assert visible == {int(k) + 1 for k in dataset.tags[i].nonzero()}


def test_every_tag_can_be_seen() -> None:
    truth = shapes_truth(150)
    for mask in truth.values():
        _, areas = np.unique(mask[mask > 0], return_counts=True)
        assert areas.min() > 0.005 * mask.size


def test_kinds_are_equally_frequent_and_pictures_hold_one_to_three() -> None:
    tags = shapes(600).tags
    assert tags.mean(0).min() > 0.27
    assert tags.mean(0).max() < 0.40
    assert set(tags.sum(1).tolist()) == {1.0, 2.0, 3.0}


def test_colour_does_not_give_the_kind_away() -> None:
    dataset, truth = shapes(200), shapes_truth(200)
    colours: dict[int, list[NDArray[np.float64]]] = {kind: [] for kind in range(1, 7)}
    for i, name in enumerate(dataset.names):
        pixels, mask = dataset[i][0].numpy(), truth[name]
        for kind in np.unique(mask[mask > 0]):
            colours[int(kind)].append(pixels[:, mask == kind].mean(1))
    means = np.array([np.mean(colour, axis=0) for colour in colours.values()])
    spread = np.concatenate(list(colours.values())).std(0)
    assert (means.std(0) < 0.35 * spread).all()


def test_the_scene_does_not_depend_on_the_size() -> None:
    small, large = shapes(20, size=64), shapes(20, size=128)
    assert torch.equal(small.tags, large.tags)
    assert small[0][0].shape == (3, 64, 64)
    coarse, fine = shapes_truth(20, size=64), shapes_truth(20, size=128)
    agreement = [np.mean(coarse[name] == fine[name][::2, ::2]) for name in coarse]
    assert min(agreement) > 0.95


def test_masks_stay_the_same_between_versions() -> None:
    mask = shapes_truth(1, seed=3)["train-00000"]
    assert np.bincount(mask.ravel(), minlength=7).tolist() == pytest.approx([6384, 0, 0, 728, 0, 819, 1285], abs=2)


def test_rendering_keeps_up_with_training() -> None:
    dataset = shapes(60)
    start = time.process_time()
    for i in range(60):
        dataset[i]
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"split": "vla"}, "Did you mean 'val'"), ({"count": 0}, "count >= 1"), ({"size": 4}, "size >= 32")],
)
def test_errors_say_what_is_allowed(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        shapes(**arguments)  # type: ignore[arg-type]
