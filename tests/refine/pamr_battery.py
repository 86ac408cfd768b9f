"""Tests that every fast implementation of PAMR must pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tagseg
from tagseg.refine.pamr import refine_plain
from tests.conftest import Reference

SETTINGS: list[dict[str, Any]] = [
    {"dilations": (1, 2, 4, 8, 12, 24), "iterations": 2, "kernel": "reference"},
    {"dilations": (3, 1), "iterations": 3, "kernel": "paper"},
    {"dilations": (1,), "iterations": 1, "kernel": "reference"},
]


# An implementation of PAMR that takes and returns tensors on the CPU: image, masks, present, and settings by name.
Refine = Callable[..., Tensor]


def sample(channels: int = 3, classes: int = 6, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Generate images that are flat in one half, masks, and which are present: one, none and five of six."""
    image, masks = torch.rand(3, channels, 13, 11), torch.randn(3, classes, 13, 11).softmax(1)
    image[..., :6] = 0.3
    present = torch.zeros(3, classes)
    present[0, 1] = 1
    present[2, 1:] = 1
    return image.to(dtype), masks.to(dtype), present


class PamrBattery:
    """Subclasses define the fixture `refine`."""

    @pytest.mark.parametrize("settings", SETTINGS)
    @pytest.mark.parametrize("partial", [False, True])
    def test_equals_the_plain_implementation(self, refine: Refine, settings: dict[str, Any], partial: bool) -> None:
        image, masks, present = sample()
        selection = present if partial else None
        expected = refine_plain(image, masks, selection, **settings)
        torch.testing.assert_close(refine(image, masks, selection, **settings), expected, atol=1e-6, rtol=0)

    @pytest.mark.parametrize("channels", [1, 4])
    def test_any_number_of_channels(self, refine: Refine, channels: int) -> None:
        image, masks, _ = sample(channels)
        expected = refine_plain(image, masks, None, **SETTINGS[1])
        torch.testing.assert_close(refine(image, masks, None, **SETTINGS[1]), expected, atol=1e-6, rtol=0)

    def test_half_precision_is_summed_in_single_precision(self, refine: Refine) -> None:
        image, masks, present = sample(dtype=torch.float16)
        refined = refine(image, masks, present, **SETTINGS[0])
        expected = refine_plain(image.float(), masks.float(), present, **SETTINGS[0])
        assert refined.dtype == torch.float16
        torch.testing.assert_close(refined, expected.half(), atol=1e-3, rtol=0)

    def test_any_memory_layout(self, refine: Refine) -> None:
        image, masks, present = sample()
        expected = refine(image, masks, present, **SETTINGS[1])
        image, masks = image.to(memory_format=torch.channels_last), masks.to(memory_format=torch.channels_last)
        assert torch.equal(refine(image, masks, present, **SETTINGS[1]), expected)

    def test_equals_the_reference(self, refine: Refine, reference: Reference) -> None:
        golden = reference("pamr.npz")
        upsampled = tagseg.pamr(golden["image"], golden["masks"], iterations=0)
        refined = refine(golden["image"], upsampled, None, dilations=(1,), iterations=1, kernel="reference")
        torch.testing.assert_close(refined, golden["out_d1_it1"], atol=1e-5, rtol=1e-4)

    def test_absent_masks_are_never_read(self, refine: Refine) -> None:
        image, masks, present = sample()
        expected = refine(image, masks, present, **SETTINGS[0])
        masks[present == 0] = torch.nan
        refined = refine(image, masks, present, **SETTINGS[0])
        assert torch.equal(refined[present == 1], expected[present == 1])
        assert refined[present == 0].isnan().all()
