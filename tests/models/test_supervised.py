import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tagseg.errors import ConfigError, WeightsError
from tagseg.models import ModelConfig, Network, build_network, load_model, save_model
from tagseg.models.serialization import select_tensors

CLASSES = ["cat", "dog"]
SMP = ["unet", "fpn", "deeplabv3plus"]


def build(architecture: str = "segmenter", backbone: str = "test_resnet", **options: object) -> Network:
    config = ModelConfig.parse(
        {"method": "supervised", "architecture": architecture, "backbone": backbone, "pretrained": False, **options}
    )
    return build_network(config, CLASSES).eval()


@pytest.mark.parametrize("architecture", ["segmenter", *SMP])
@torch.no_grad()
def test_background_is_learned_and_scores_are_the_highest_probabilities(architecture: str) -> None:
    network = build(architecture, "test_resnet" if architecture == "segmenter" else "resnet18")
    for size in ((64, 64), (75, 50)):
        out = network(torch.randn(2, 3, *size))
        assert out.masks.shape == (2, 3, *size)
        assert torch.allclose(out.masks.sum(1), torch.ones(2, *size), atol=1e-4)
        small = network(torch.randn(2, 3, *size), full_size=False)
        assert torch.allclose(small.masks, small.logits.softmax(1))
        assert torch.allclose(small.scores.sigmoid(), small.masks[:, 1:].amax((2, 3)), atol=1e-4)


@pytest.mark.parametrize("architecture", ["segmenter", "deeplabv3plus"])
def test_saved_network_is_the_same(architecture: str, tmp_path: Path) -> None:
    network = build(architecture, "test_resnet" if architecture == "segmenter" else "resnet18")
    save_model(network, tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(network(x).masks, loaded(x).masks)


@pytest.mark.parametrize(("backbone", "prefix"), [("resnet18", ""), ("tu-resnet18", "model.")])
def test_encoder_weights_from_a_file(backbone: str, prefix: str, tmp_path: Path) -> None:
    """Files in the layout of timm or torchvision, with their classifier."""
    state = select_tensors(build("fpn", backbone).state_dict(), f"backbone.net.{prefix}")
    save_file({**state, "fc.weight": torch.zeros(2, 2)}, tmp_path / "encoder.safetensors")
    network = build("fpn", backbone, pretrained=tmp_path / "encoder.safetensors")
    assert network.config.finetune
    loaded = select_tensors(network.state_dict(), f"backbone.net.{prefix}")
    assert all(torch.equal(value, loaded[name]) for name, value in state.items())
    with pytest.raises(WeightsError, match="does not fit this network"):
        build("fpn", "resnet50", pretrained=tmp_path / "encoder.safetensors")


def test_finetuned_encoder_learns_slower_than_the_decoder() -> None:
    groups = {group["name"]: group for group in build("fpn", "resnet18", finetune=True).parameter_groups(0.1)}
    assert groups["backbone weights"]["params"]
    assert groups["head weights"]["lr"] == pytest.approx(10 * groups["backbone weights"]["lr"])


def test_unknown_names_are_one_line() -> None:
    with pytest.raises(ConfigError, match="unknown architecture 'deeplabv4'; known: .*Did you mean"):
        build("deeplabv4")
    with pytest.raises(ConfigError, match="'nothing' cannot be the encoder of unet"):
        build("unet", "nothing")
    with pytest.raises(ConfigError, match="learns from masks: set model.method to supervised"):
        ModelConfig.parse({"architecture": "unet"})


def test_missing_package_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "segmentation_models_pytorch", None)
    with pytest.raises(ConfigError, match=r"pip install 'tagseg\[stage2\]'"):
        build("unet", "resnet18")
