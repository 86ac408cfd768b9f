import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as v2

from tagseg.training.jitter import draw_jitter, jitter
from tests.training.small import small_recipe

OPERATIONS = (v2.adjust_brightness, v2.adjust_contrast, v2.adjust_saturation, v2.adjust_hue)


def some_images(count: int) -> Tensor:
    images = torch.rand(count, 3, 9, 11)
    images[0, :, :4] = 0.3  # grey has no hue
    images[1, :, 4:] = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    return images


def test_is_torchvisions_jitter_of_each_image() -> None:
    settings = small_recipe("transforms.hue=0.5").transforms
    images, draws = some_images(12), torch.stack([draw_jitter(settings) for _ in range(12)])
    changed = jitter(images.clone(), draws)
    for image, (order, factors), result in zip(images, draws, changed, strict=True):
        expected = image
        for which in order.int().tolist():
            expected = OPERATIONS[which](expected, float(factors[which]))
        assert torch.allclose(result, expected, atol=2e-6)


def test_without_strength_nothing_changes() -> None:
    still = small_recipe(*(f"transforms.{name}=0" for name in ("brightness", "contrast", "saturation", "hue")))
    images = some_images(4)
    changed = jitter(images.clone(), torch.stack([draw_jitter(still.transforms) for _ in range(4)]))
    assert torch.allclose(changed, images, atol=1e-6)


@pytest.mark.parametrize("strength", [0.3, 3.0])
def test_factors_stay_within_their_range_and_are_never_negative(strength: float) -> None:
    settings = small_recipe(f"transforms.brightness={strength}").transforms
    factors = torch.stack([draw_jitter(settings)[1] for _ in range(200)])
    assert factors[:, 0].min() >= max(0, 1 - strength)
    assert factors[:, 0].max() <= 1 + strength
    assert factors[:, 3].abs().max() <= settings.hue
