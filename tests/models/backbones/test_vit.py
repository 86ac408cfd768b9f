from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import tagseg
from tagseg.models.backbones import TimmViT

NAME = "vit_tiny_patch16_224"


def test_tokens_are_those_of_timm() -> None:
    backbone = TimmViT(NAME, blocks=(3, 12)).eval()
    images = torch.randn(2, 3, 48, 80)
    with torch.no_grad():
        skip, deep = backbone(images)
        tokens = backbone.net.forward_features(images)[:, 1:]
    assert skip is None
    assert deep.shape == (2, 2 * 192, 3, 5)
    assert torch.allclose(deep[:, 192:], tokens.transpose(1, 2).unflatten(2, (3, 5)), atol=1e-5)


def test_images_are_resized_to_whole_patches() -> None:
    backbone = TimmViT(NAME).eval()
    image = torch.randn(1, 3, 33, 55)
    with torch.no_grad():
        _, deep = backbone(image)
        _, expected = backbone(F.interpolate(image, (32, 48), mode="bilinear"))
    assert deep.shape == (1, 2 * 192, 2, 3)
    assert torch.equal(deep, expected)


@pytest.mark.parametrize(
    ("trainable_blocks", "learning"),
    [(0, set[str]()), (1, {"blocks.11", "norm"}), ("all", {f"blocks.{index}" for index in range(12)} | {"norm"})],
)
def test_only_the_last_blocks_learn(trainable_blocks: int | str, learning: set[str]) -> None:
    model = tagseg.build_model(NAME, 2, width=16, finetune=True, trainable_blocks=trainable_blocks)
    names = {
        name for name, parameter in model.backbone.get_submodule("net").named_parameters() if parameter.requires_grad
    }
    modules = {".".join(name.split(".")[: 2 if name.startswith("blocks") else 1]) for name in names}
    assert modules - {"cls_token", "pos_embed", "patch_embed"} == learning
    assert ("pos_embed" in modules) == (trainable_blocks == "all")


def test_weights_of_a_timm_file(tmp_path: Path) -> None:
    original: Any = timm.create_model(NAME).eval()
    save_file(original.state_dict(), tmp_path / "vit.safetensors")
    model = tagseg.build_model(NAME, 2, width=16, pretrained=tmp_path / "vit.safetensors").eval()
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        tokens = original.forward_features(images)[:, 1:]
        deep = model.backbone(images)[1]
    assert torch.allclose(deep[:, 192:], tokens.transpose(1, 2).unflatten(2, (14, 14)), atol=1e-5)
    assert not any(parameter.requires_grad for parameter in model.backbone.parameters())


def test_wrong_options_are_named() -> None:
    with pytest.raises(
        tagseg.ConfigError, match="model.blocks must be from 1 to 12, the blocks of vit_tiny_patch16_224"
    ):
        tagseg.build_model(NAME, 2, blocks=(13,))
    with pytest.raises(tagseg.ConfigError, match="model.trainable_blocks must be at most 12"):
        tagseg.build_model(NAME, 2, trainable_blocks=13)
    with pytest.raises(tagseg.ConfigError, match="has no tokens for images of any size"):
        TimmViT("swin_tiny_patch4_window7_224")
