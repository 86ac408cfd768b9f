from pathlib import Path

import pytest
import torch

from tagseg._hub import DEFAULT_MODEL
from tagseg.errors import WeightsError
from tagseg.models import ModelConfig, Network, build_network, load_model, save_model
from tagseg.models.transfer import inherit_design

METHODS: dict[str, dict[str, object]] = {
    "single-stage": {"method": "single-stage", "width": 16, "gate": "deterministic"},
    "cam": {"method": "cam"},
    "supervised": {"method": "supervised", "width": 16},
    "smp": {"method": "supervised", "architecture": "unet", "backbone": "resnet18"},
}


def build(name: str, classes: list[str], pretrained: bool | str | Path = False, **options: object) -> Network:
    config = {"backbone": "test_resnet", "pretrained": pretrained, **METHODS[name], **options}
    return build_network(ModelConfig.parse(config), classes).eval()


@torch.no_grad()
def test_frozen_transformer_starts_a_recipe_of_another_backbone(tmp_path: Path) -> None:
    model = build("single-stage", ["cat"], gate="none", backbone="test_vit", blocks=[2], trainable_blocks=0)
    save_model(model, tmp_path / "model.safetensors")
    network = build("single-stage", ["dog", "cat"], tmp_path, backbone="resnet50", width=256)
    assert network.config.blocks == (2,)
    assert network.backbone.is_frozen
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(network.eval()(x).logits[:, 2], model(x).logits[:, 1])


@pytest.mark.parametrize("name", ["nowhere", "weights.safetensors", "weights.pth"])
def test_path_that_does_not_exist_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"{name}: does not exist; name a run folder, a model file"):
        inherit_design(ModelConfig(pretrained=str(tmp_path / name)))


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_known_classes_and_shared_layers_are_kept(name: str, tmp_path: Path) -> None:
    """Scores per pixel of a class that both models have are the same, whatever its place among the others."""
    model = build(name, ["cat", "dog", "owl"])
    save_model(model, tmp_path / "model.safetensors")
    network = build(name, ["dog", "elk", "cat"], tmp_path / "model.safetensors")
    assert network.config.class_names == ("dog", "elk", "cat")
    x = torch.randn(1, 3, 64, 64)
    old, new = (part(x).logits.flip(1) for part in (model, network))  # classes last to first; the background is last
    assert torch.equal(new[:, 0], old[:, 2])  # cat
    assert torch.equal(new[:, 2], old[:, 1])  # dog
    assert torch.equal(new[:, 3:], old[:, 3:])  # the background
    assert not torch.isin(new[:, 1], old).all()


def test_design_is_the_models_and_training_the_recipes(tmp_path: Path) -> None:
    save_model(build("single-stage", ["cat"]), tmp_path / "model.safetensors")
    options = {"backbone": "resnet50", "width": 256, "gate": "stochastic", "penalty": "plain"}
    config = build("single-stage", ["cat"], tmp_path, **options).config  # the folder of a run
    assert (config.backbone, config.width, config.gate) == ("test_resnet", 16, "deterministic")
    assert (config.penalty, config.finetune) == ("plain", True)


@torch.no_grad()
def test_masks_are_learned_from_a_model_of_tags(tmp_path: Path) -> None:
    save_model(build("single-stage", ["cat", "dog"]), tmp_path / "model.safetensors")
    model = load_model(tmp_path / "model.safetensors")
    network = build("supervised", ["dog", "cat"], tmp_path / "model.safetensors")
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(network(x).logits[:, [2, 1]], model(x).logits[:, 1:])


def test_model_of_the_package_knows_its_classes() -> None:
    network = build("single-stage", ["dog", "kite"], DEFAULT_MODEL)
    assert network.config.backbone == "tf_efficientnet_lite0"


def test_model_of_masks_alone_is_refused_for_tags(tmp_path: Path) -> None:
    save_model(build("smp", ["cat", "dog"]), tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="is a unet, which learns from masks alone"):
        build("single-stage", ["cat", "dog"], tmp_path)


def test_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="this folder has no model.safetensors"):
        build("single-stage", ["dog"], tmp_path)
