import pytest
import torch

import tagseg
from tests.compare import assert_close
from tests.conftest import Reference


def test_reference(reference: Reference) -> None:
    golden = reference("multiscale.npz")
    masks = [
        mask[:, int(top) : int(top + height), int(left) : int(left + width)]
        for mask, (top, left, height, width) in zip(golden["masks"], golden["pads"], strict=True)
    ]
    height, width = golden["image_hw"].tolist()
    merged = tagseg.merge_scales(masks, (height, width), flipped=[False, True] * 4, labels=golden["labels"])
    assert_close(merged, golden["out"])


def test_a_mirrored_copy_changes_nothing_but_the_backgrounds_discount() -> None:
    masks = torch.rand(3, 6, 8).softmax(0)
    merged = tagseg.merge_scales([masks, masks.flip(-1)], (6, 8), flipped=[False, True])
    assert_close(merged[1:], masks[1:])
    assert_close(merged[:1], masks[:1] ** 3)
    assert_close(tagseg.merge_scales([masks], (6, 8), flipped=[False], background_power=1), masks)


def test_classes_that_are_not_kept_are_zero() -> None:
    merged = tagseg.merge_scales([torch.rand(3, 4, 4)], (8, 8), flipped=[False], labels=torch.tensor([1, 0]))
    assert merged[1].min() > 0
    assert (merged[2] == 0).all()


def test_bad_input_names_the_value() -> None:
    with pytest.raises(ValueError, match="masks is empty"):
        tagseg.merge_scales([], (4, 4), flipped=[])
    with pytest.raises(ValueError, match="the same length, got 1 and 2"):
        tagseg.merge_scales([torch.rand(3, 4, 4)], (4, 4), flipped=[True, False])
