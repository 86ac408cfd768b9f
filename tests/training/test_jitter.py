import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as v2

from tagseg.training.jitter import draw_jitter, jitter
from tests.training.small import small_recipe

OPERATIONS = (v2.adjust_brightness, v2.adjust_contrast, v2.adjust_saturation, v2.adjust_hue)


def some_pictures(count: int) -> Tensor:
    pictures = torch.rand(count, 3, 9, 11)
    pictures[0, :, :4] = 0.3  # grey has no hue
    pictures[1, :, 4:] = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    return pictures


def test_is_torchvisions_jitter_of_each_picture() -> None:
    settings = small_recipe("pictures.hue=0.5").pictures
    pictures, draws = some_pictures(12), torch.stack([draw_jitter(settings) for _ in range(12)])
    changed = jitter(pictures.clone(), draws)
    for picture, (order, factors), result in zip(pictures, draws, changed, strict=True):
        expected = picture
        for which in order.int().tolist():
            expected = OPERATIONS[which](expected, float(factors[which]))
        assert torch.allclose(result, expected, atol=2e-6)


def test_without_strength_nothing_changes() -> None:
    still = small_recipe(*(f"pictures.{name}=0" for name in ("brightness", "contrast", "saturation", "hue")))
    pictures = some_pictures(4)
    changed = jitter(pictures.clone(), torch.stack([draw_jitter(still.pictures) for _ in range(4)]))
    assert torch.allclose(changed, pictures, atol=1e-6)


@pytest.mark.parametrize("strength", [0.3, 3.0])
def test_factors_stay_within_their_range_and_are_never_negative(strength: float) -> None:
    settings = small_recipe(f"pictures.brightness={strength}").pictures
    factors = torch.stack([draw_jitter(settings)[1] for _ in range(200)])
    assert factors[:, 0].min() >= max(0, 1 - strength)
    assert factors[:, 0].max() <= 1 + strength
    assert factors[:, 3].abs().max() <= settings.hue
