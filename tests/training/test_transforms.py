import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as v2

from tagseg.data import shapes, shapes_masks
from tagseg.data.masks import IGNORE_LABEL
from tagseg.training.transforms import TrainingImages, draw_jitter, jitter, seed_for
from tests.training.small_run import small_recipe, student_recipe

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


@pytest.mark.parametrize("scale", [None, (0.3, 0.9), (1.0, 3.0)])
def test_mask_is_transformed_as_its_image(scale: tuple[float, float] | None) -> None:
    """The image of a mask's own values stays equal to the mask, up to interpolation at the borders."""
    data, masks = shapes(4, size=96), shapes_masks(4, size=96)
    settings = student_recipe("transforms.crop=64").with_settings({"transforms": {"scale": scale}}).transforms
    images = TrainingImages(data, settings, 0, masks)

    class MaskImages:
        def read(self, index: int) -> np.ndarray:
            return np.repeat(masks[data.image_ids[index]][..., None] * 40, 3, 2)

    data.images = MaskImages()  # type: ignore[assignment]
    for index in range(4):
        crop, _, mask, _ = images[0, index]
        assert crop.shape[1:] == mask.shape == (64, 64)
        assert mask.dtype == torch.uint8
        is_labeled = mask != IGNORE_LABEL
        assert (crop[0][~is_labeled] == 114).all()
        difference = (crop[0].float() - 40.0 * mask)[is_labeled].abs()
        assert (difference < 20).float().mean() > 0.85
