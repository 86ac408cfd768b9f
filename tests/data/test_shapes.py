"""The built-in dataset: the same images everywhere, exact masks, fair tags."""

import numpy as np
import pytest
import torch

from tagseg.data import DataError, shapes, shapes_masks


def test_a_image_depends_on_seed_split_and_index_alone() -> None:
    few, many = shapes(3), shapes(8)
    for i in range(3):
        assert torch.equal(few[i][0], many[i][0])
        assert torch.equal(few[i][1], many[i][1])
    assert not torch.equal(few[0][0], shapes(1, seed=1)[0][0])


def test_splits_share_no_image() -> None:
    splits = [shapes(40, split=split) for split in ("train", "val", "test")]
    assert len({split[i][0].numpy().tobytes() for split in splits for i in range(40)}) == 120
    assert len({name for split in splits for name in split.names}) == 120


def test_tags_are_exactly_the_kinds_in_the_mask() -> None:
    dataset, ground_truth = shapes(60), shapes_masks(60)
    for i, name in enumerate(dataset.names):
        visible = set(np.unique(ground_truth[name])) - {0}
        assert visible == {int(k) + 1 for k in dataset.tags[i].nonzero()}


def test_every_tag_can_be_seen() -> None:
    ground_truth = shapes_masks(150)
    for mask in ground_truth.values():
        _, areas = np.unique(mask[mask > 0], return_counts=True)
        assert areas.min() > 0.005 * mask.size


def test_kinds_are_equally_frequent_and_images_hold_one_to_three() -> None:
    tags = shapes(600).tags
    assert tags.mean(0).min() > 0.27
    assert tags.mean(0).max() < 0.40
    assert set(tags.sum(1).tolist()) == {1.0, 2.0, 3.0}


def test_colour_alone_does_not_tell_the_kinds_apart() -> None:
    """A kind leans to a colour, but the usual colour of a kind names too few things rightly to do without the shape."""
    dataset, ground_truth = shapes(300), shapes_masks(300)
    colours, kinds = [], []
    for i, name in enumerate(dataset.names):
        pixels, mask = dataset[i][0].numpy(), ground_truth[name]
        for kind in np.unique(mask[mask > 0]):
            colours.append(pixels[:, mask == kind].mean(1))
            kinds.append(kind)
    seen, kind = np.array(colours), np.array(kinds)
    usual = np.array([seen[::2][kind[::2] == k].mean(0) for k in range(1, 7)])
    guessed = 1 + np.linalg.norm(seen[1::2, None] - usual[None], axis=2).argmin(1)
    assert np.mean(guessed == kind[1::2]) < 2 / 3


def test_the_scene_does_not_depend_on_the_size() -> None:
    small, large = shapes(20, size=64), shapes(20, size=128)
    assert torch.equal(small.tags, large.tags)
    assert small[0][0].shape == (3, 64, 64)
    coarse, fine = shapes_masks(20, size=64), shapes_masks(20, size=128)
    agreement = [np.mean(coarse[name] == fine[name][::2, ::2]) for name in coarse]
    assert min(agreement) > 0.95


def test_masks_stay_the_same_between_versions() -> None:
    mask = shapes_masks(1, seed=3)["train-00000"]
    assert np.bincount(mask.ravel(), minlength=7).tolist() == pytest.approx([5967, 0, 0, 826, 0, 952, 1471], abs=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"split": "vla"}, "Did you mean 'val'"), ({"count": 0}, "count >= 1"), ({"size": 4}, "size >= 32")],
)
def test_errors_say_what_is_allowed(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        shapes(**arguments)  # type: ignore[arg-type]
