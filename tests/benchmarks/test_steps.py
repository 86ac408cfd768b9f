"""The baselines compute what they are compared with."""

import torch

import tagseg
from tagseg.benchmarks.materialised import materialised_pamr
from tagseg.benchmarks.photos import photo_like
from tagseg.benchmarks.train import TrainingSteps


def test_the_materialised_form_is_pamr() -> None:
    image, masks = torch.rand(2, 3, 20, 26), torch.rand(2, 4, 20, 26)
    assert torch.allclose(materialised_pamr(image, masks), tagseg.pamr(image, masks), atol=1e-5)


def test_both_forms_of_a_step_learn_the_same() -> None:
    weights = []
    for form in ("published", "fast"):
        steps = TrainingSteps("test_resnet", 64, 2, torch.device("cpu"))
        steps.draws[:] = torch.tensor([[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 0.0]])  # the published form has no jitter
        torch.manual_seed(0)
        getattr(steps, form)()
        weights.append(torch.cat([parameter.flatten() for parameter in steps.network.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-5)


def test_generated_photos_have_regions_and_texture() -> None:
    image = photo_like(96, 128).float()
    assert image.shape == (3, 96, 128)
    assert image.std() > 20
    assert (image[..., 1:] - image[..., :-1]).abs().mean() > 1
    assert torch.equal(photo_like(96, 128), photo_like(96, 128))
