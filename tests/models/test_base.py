import pytest
import torch
from torch import nn

import tagseg
from tagseg.models.base import enlarge, enlarge_in_training


def test_train_keeps_frozen_norms_in_evaluation_mode() -> None:
    model = tagseg.build_model("resnet50", 2, finetune=True)
    model.eval().train().train(False).train(True)
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    for name, norm in norms.items():
        assert norm.training == (not name.startswith(("backbone.", "aspp."))), name
    assert model.decoder.training
    assert model.gate is not None
    assert model.gate.training


@pytest.mark.parametrize(("finetune", "rates"), [(False, {1.0}), (True, {0.1, 1.0})])
def test_finetuned_backbone_has_a_tenth_of_the_learning_rate_of_the_head(finetune: bool, rates: set[float]) -> None:
    groups = tagseg.build_model("resnet18", 2, finetune=finetune).parameter_groups(0.1)
    assert {group["lr"] for group in groups if group["params"]} == rates
    assert [group["name"] for group in groups] == [
        "backbone weights",
        "backbone biases",
        "head weights",
        "head biases",
    ]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 31, 64), "at least 32 pixels high and wide, got 31 x 64"),
        ((1, 1, 64, 64), r"images must be \[B, 3, H, W\], got a tensor of shape \[1, 1, 64, 64\]"),
        ((3, 64, 64), r"images must be \[B, 3, H, W\]"),
    ],
)
def test_wrong_image_shapes_are_named(shape: tuple[int, ...], message: str) -> None:
    for build in (tagseg.build_model, tagseg.build_cam):
        with pytest.raises(ValueError, match=message):
            build("resnet18", 2)(torch.zeros(shape))


@pytest.mark.parametrize("size", [(9, 12), (1, 5), (3, 3)])
def test_enlarge_in_training_equals_enlarge(size: tuple[int, int]) -> None:
    maps = torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    plain, fast = enlarge(maps, size), enlarge_in_training(maps, size)
    assert torch.allclose(plain, fast)
    upstream = torch.randn_like(plain)
    expected, gradient = (torch.autograd.grad(result, maps, upstream)[0] for result in (plain, fast))
    assert torch.allclose(gradient, expected)
