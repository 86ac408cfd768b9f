from typing import Any

import pytest
import torch
from timm.models import create_model, register_model

from tagseg.errors import ConfigError
from tagseg.models import build_model
from tagseg.models.backbones.timm_cnn import TimmCNN, timm_classifier_names, timm_features


@register_model
def resnet18_with_values(**options: Any) -> torch.nn.Module:
    """A network that reads values, which tensors on the meta device do not have."""
    assert torch.ones(1).item() == 1
    network = create_model("resnet18", **{**options, "pretrained": False})

    def read(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        assert not inputs[0].isnan().any().item()

    network.register_forward_pre_hook(read)
    return network


def test_networks_may_read_values() -> None:
    network = build_model("resnet18_with_values", 3, pretrained=False).eval()
    plain = build_model("resnet18", 3, pretrained=False)
    assert network.state_dict().keys() == plain.state_dict().keys()
    assert network(torch.zeros(1, 3, 65, 47)).masks.shape == (1, 4, 65, 47)


# The second supports no dilation, so that a first attempt fails; the third takes only images of 75 pixels and more.
@pytest.mark.parametrize(
    ("name", "options"), [("resnet18", {"output_stride": 16}), ("ghostnet_100", {}), ("inception_v3", {})]
)
def test_a_seed_gives_the_weights_that_timm_gives(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    weights = TimmCNN(name).net.state_dict()
    state = torch.get_rng_state()
    torch.manual_seed(0)
    expected = timm_features(name, 3, out_indices=(1, 4), **options).state_dict()
    assert all(torch.equal(weights[key], value) for key, value in expected.items())
    assert torch.equal(torch.get_rng_state(), state)


def test_names_of_a_classifier_draw_nothing() -> None:
    state = torch.get_rng_state()
    assert "fc.weight" in timm_classifier_names("resnet18")
    assert torch.equal(torch.get_rng_state(), state)


def test_features_that_are_not_the_named_ones_are_refused() -> None:
    """timm's DLA gives maps of other strides once some are chosen."""
    with pytest.raises(ConfigError, match="'dla34' does not give feature maps .* not the .* maps that it names"):
        TimmCNN("dla34")
