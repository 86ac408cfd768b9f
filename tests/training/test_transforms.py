import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as v2

from tagseg.training.transforms import draw_jitter, jitter, seed_for
from tests.training.small_run import small_recipe

OPERATIONS = (v2.adjust_brightness, v2.adjust_contrast, v2.adjust_saturation, v2.adjust_hue)


def sample_images(count: int) -> Tensor:
    images = torch.rand(count, 3, 9, 11)
    images[0, :, :4] = 0.3  # gray has no hue
    images[1, :, 4:] = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    return images


def test_jitter_equals_torchvision() -> None:
    settings = small_recipe("transforms.hue=0.5").transforms
    images, draws = sample_images(12), torch.stack([draw_jitter(settings) for _ in range(12)])
    jittered = jitter(images.clone(), draws)
    for image, (order, factors), result in zip(images, draws, jittered, strict=True):
        expected = image
        for operation in order.int().tolist():
            expected = OPERATIONS[operation](expected, float(factors[operation]))
        assert torch.allclose(result, expected, atol=2e-6)


def test_jitter_of_strength_zero_changes_nothing() -> None:
    recipe = small_recipe(*(f"transforms.{name}=0" for name in ("brightness", "contrast", "saturation", "hue")))
    images = sample_images(4)
    jittered = jitter(images.clone(), torch.stack([draw_jitter(recipe.transforms) for _ in range(4)]))
    assert torch.allclose(jittered, images, atol=1e-6)


@pytest.mark.parametrize("strength", [0.3, 3.0])
def test_jitter_factors_stay_in_range_and_are_not_negative(strength: float) -> None:
    settings = small_recipe(f"transforms.brightness={strength}").transforms
    factors = torch.stack([draw_jitter(settings)[1] for _ in range(200)])
    assert factors[:, 0].min() >= max(0, 1 - strength)
    assert factors[:, 0].max() <= 1 + strength
    assert factors[:, 3].abs().max() <= settings.hue


def test_seeds_differ() -> None:
    assert len({seed_for(a, b, c) for a in range(5) for b in range(20) for c in range(50)}) == 5000
    assert all(0 <= seed_for(0, a) < 2**63 for a in range(1000))
