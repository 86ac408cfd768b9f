from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

import tagseg
from tests.conftest import Reference


def random_case(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    masks = (3 * torch.randn(3, 5, 9, 11, generator=generator)).softmax(1)
    return masks, torch.randint(0, 2, (3, 4), generator=generator).float()


cases = st.builds(random_case, st.integers(0, 10_000))


def test_equals_the_reference(reference: Reference) -> None:
    golden = reference("pseudo.npz")
    one_hot = golden["pseudo_gt"]
    expected = torch.where(one_hot.any(1), one_hot.int().argmax(1), tagseg.UNLABELED)
    assert torch.equal(tagseg.pseudo_labels(golden["masks"], golden["labels"]), expected)


@settings(max_examples=30, deadline=None)
@given(cases)
def test_each_labeled_pixel_is_confident_of_exactly_its_class(case: tuple[Tensor, Tensor]) -> None:
    masks, labels = case
    pseudo = tagseg.pseudo_labels(masks, labels)
    fraction = torch.tensor([0.7, 0.6, 0.6, 0.6, 0.6])[:, None, None]
    present = torch.cat([torch.ones(3, 1), labels], 1)[..., None, None]
    confident = (masks > (fraction * masks.amax((2, 3), keepdim=True)).clamp_min(0.2)) & present.bool()
    for index in range(5):
        labeled = pseudo == index
        assert (labeled <= confident[:, index]).all()
        assert not (labeled & confident[:, [other for other in range(5) if other != index]].any(1)).any()
    assert ((pseudo == tagseg.UNLABELED) == (confident.sum(1) != 1)).all()


def test_classes_without_a_label_get_no_pixels() -> None:
    masks = torch.tensor([0.05, 0.05, 0.9])[None, :, None, None].expand(1, 3, 4, 4)
    assert (tagseg.pseudo_labels(masks, torch.tensor([[1.0, 0.0]])) == tagseg.UNLABELED).all()
    assert (tagseg.pseudo_labels(masks, torch.tensor([[0.0, 1.0]])) == 2).all()


def test_weak_masks_get_pixels_only_without_the_lower_bound() -> None:
    """The lower bound of 0.2 is the published code's; the paper's text has none."""
    masks = torch.full((1, 2, 4, 4), 0.05)
    masks[:, :, 0, 0] = torch.tensor([0.0, 0.15])
    label = torch.ones(1, 1)
    assert not (tagseg.pseudo_labels(masks, label) == 1).any()
    assert (tagseg.pseudo_labels(masks, label, min_threshold=0) == 1).sum() == 1


def test_masks_are_resized_to_the_crop() -> None:
    masks, labels = random_case(0)
    assert tagseg.pseudo_labels(masks, labels, size=(33, 37)).shape == (3, 33, 37)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masks": torch.rand(2, 3, 3)}, r"masks must be \[B, 1 \+ C, h, w\]"),
        ({"labels": torch.ones(2, 4)}, r"labels must be \[2, 3\], one column a class, got shape \[2, 4\]"),
        ({"labels": torch.full((2, 3), 2.0)}, "labels must be 0 or 1, got 2.0"),
        ({"masks": torch.full((2, 4, 3, 3), torch.nan)}, "masks has 72 NaN"),
        ({"foreground_threshold": 1.2}, "foreground_threshold must be between 0 and 1, got 1.2"),
        ({"min_threshold": -1}, "min_threshold must be between 0 and 1, got -1"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"masks": torch.rand(2, 4, 3, 3), "labels": torch.ones(2, 3), **change}
    with pytest.raises(ValueError, match=message):
        tagseg.pseudo_labels(**arguments)
