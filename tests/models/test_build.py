from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

import tagseg


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"backbone": "resnet5O"},
            "unknown backbone 'resnet5O'; known: resnet101, resnet50, .* and every .* timm.*Did you",
        ),
        ({"backbone": "mixer_s16_224"}, "timm's 'mixer_s16_224' does not give feature maps"),
        ({"backbone": "swin_tiny_patch4_window7_224"}, "does not give feature maps"),
        ({"classes": 0}, "classes must be 1 or more .*, got 0"),
        ({"classes": "dog"}, "classes must be a number or a list of names, got the text 'dog'"),
        ({"classes": ["dog", "dog"]}, "class names must differ, got 'dog' more than once"),
        ({"in_channels": 0}, "setting in_channels=0: input should be greater than or equal to 1"),
        ({"pooling": "ngpw"}, "unknown pooling 'ngpw'; known: gap, gwp, lse, max, ngwp. Did you mean 'ngwp'?"),
        ({"penalty": "foca"}, "unknown penalty 'foca'.*Did you mean 'focal'?"),
        ({"gate": "determinstic"}, "unknown gate 'determinstic'.*Did you mean 'deterministic'?"),
        ({"gate": "none", "gci": True}, "gci needs a gate"),
        ({"gci": "papers"}, "gci must be true, false or 'paper', got 'papers'"),
        ({"psi": 1.0}, "setting psi=1.0: input should be less than 1"),
        ({"gat": "none"}, "unknown setting 'gat'; known: .*Did you mean 'gate'"),
    ],
)
def test_wrong_settings_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tagseg.build_model(**{"backbone": "resnet18", "classes": 2, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_networks_can_be_built_without_gradients(mode: Callable[[], AbstractContextManager[None]]) -> None:
    with mode():
        assert tagseg.build_model("hrnet_w18_small", 2).config.num_classes == 2
