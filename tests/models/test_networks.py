"""Tests that every network must pass; a new backbone needs one line in BACKBONES."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import tagseg
from tagseg.models import Network
from tests.compare import assert_close

BACKBONES = [
    "wideresnet38",
    "vgg16",
    "resnet50",
    "resnet101",
    "resnet18",
    "mobilenetv2_100",
    "efficientnet_lite0",
    "convnext_tiny",
    "densenet121",
    "regnety_002",
    "hrnet_w18_small",  # takes only sides that are multiples of 32
    "ghostnet_100",  # supports no dilation
    "inception_v3",  # takes only images of 75 pixels and more
    "vit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",  # two tokens that are no patches
    "eva02_tiny_patch14_224",  # rotary positions, patches of 14
    "tiny_vit_5m_224",  # a transformer with feature maps
]
# CAM's head is the same for all: one of each kind of backbone suffices.
CAM_BACKBONES = ["vgg16", "resnet18", "hrnet_w18_small", "vit_tiny_patch16_224", "tiny_vit_5m_224"]
# Backbones that run the same code of tagseg as others.
LIKE_OTHERS = ["resnet101", "resnet18", "convnext_tiny", "densenet121", "regnety_002", "inception_v3"]
CLASSES = 3
Builder = Callable[..., Network]
NETWORKS = [
    *(pytest.param(tagseg.build_model, name, id=f"method-{name}") for name in BACKBONES),
    *(pytest.param(tagseg.build_cam, name, id=f"cam-{name}") for name in CAM_BACKBONES),
]
each_network = pytest.mark.parametrize(("build", "backbone"), NETWORKS)


@pytest.fixture(scope="module", params=[pytest.param(case.values, id=case.id) for case in NETWORKS])
def model(request: pytest.FixtureRequest) -> Network:
    """Network shared by all tests that do not change it."""
    build, backbone = request.param
    torch.manual_seed(0)
    network: Network = build(backbone, CLASSES)
    return network.eval()


@torch.inference_mode()
@pytest.mark.parametrize("size", [(32, 32), (33, 47), (101, 64)])
def test_any_image_size(model: Network, size: tuple[int, int]) -> None:
    out = model(torch.randn(2, 3, *size))
    assert out.scores.shape == (2, CLASSES)
    assert out.masks.shape == (2, 1 + CLASSES, *size)
    assert out.scores.isfinite().all()
    assert out.masks.isfinite().all()
    assert out.masks.min() >= 0
    assert out.logits.shape[1] == (1 + CLASSES if isinstance(model, tagseg.Segmenter) else CLASSES)
    if isinstance(model, tagseg.Segmenter):
        assert torch.allclose(out.masks.sum(1), torch.ones(2, *size), atol=1e-5)
        small = model(torch.randn(2, 3, *size), full_size=False)
        assert small.masks.shape == small.logits.shape


@torch.inference_mode()
def test_results_do_not_depend_on_the_batch(model: Network) -> None:
    images = torch.randn(3, 3, 40, 48)
    batched, single = model(images), model(images[1:2])
    assert_close(batched.masks[1:2], single.masks, tolerance=1e-3)


@torch.inference_mode()
def test_save_and_load(model: Network, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tagseg.save_model(model, path)
    loaded = tagseg.load_model(path)
    images = torch.randn(1, 3, 33, 47)
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(images).masks, model(images).masks)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("build", "backbone"),
    [
        *((tagseg.build_model, name) for name in BACKBONES if name not in LIKE_OTHERS),
        (tagseg.build_cam, "resnet18"),
    ],
)
def test_compiles_as_one_graph(build: Builder, backbone: str) -> None:
    model, images = build(backbone, CLASSES).eval(), torch.randn(1, 3, 33, 47)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(images).masks, model(images).masks)


@torch.inference_mode()
def test_half_precision_returns_masks_and_scores_in_full_precision(model: Network) -> None:
    images = torch.randn(1, 3, 33, 47)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(images)
    assert out.scores.dtype == out.masks.dtype == out.logits.dtype == torch.float32
    assert out.masks.isfinite().all()


@torch.inference_mode()
def test_channels_last(model: Network) -> None:
    images = torch.randn(1, 3, 33, 47)
    expected = model(images).masks
    model.to(memory_format=torch.channels_last)
    try:
        assert_close(model(images.to(memory_format=torch.channels_last)).masks, expected, tolerance=1e-3)
    finally:
        model.to(memory_format=torch.contiguous_format)


@each_network
def test_runs_on_the_meta_device(backbone: str, build: Builder) -> None:
    network = build(backbone, CLASSES).to("meta")  # the constructors of older versions of timm read values
    out = network(torch.randn(2, 3, 33, 47, device="meta"))
    assert out.masks.shape == (2, 1 + CLASSES, 33, 47)
    assert out.masks.is_meta


@each_network
@pytest.mark.parametrize("finetune", [True, False])
def test_gradients_reach_exactly_the_trainable_parameters(backbone: str, build: Builder, finetune: bool) -> None:
    if finetune is False and backbone in ("wideresnet38", "resnet101"):
        pytest.skip("the same code as the lighter backbones, and slow")
    model = build(backbone, CLASSES, finetune=finetune).train()
    for module in model.modules():  # timm starts some branches with a batch norm of weight 0, which no gradient passes
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            nn.init.ones_(module.weight)
    before = {name: buffer.clone() for name, buffer in model.named_buffers() if name.startswith("backbone.")}
    out = model(torch.randn(2, 3, 64, 64), full_size=False)
    (out.scores.sum() + out.logits.square().sum()).backward()
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    unused = {id(p) for p in model.backbone.unused_parameters(with_skip=isinstance(model, tagseg.Segmenter))}
    assert bool(unused) == (backbone == "hrnet_w18_small")
    assert any(id(p) not in unused for n, p in model.named_parameters() if n in frozen) == finetune
    for name, parameter in model.named_parameters():
        if name in frozen:
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name
    statistics_changed = any(
        not torch.equal(buffer, before[name]) for name, buffer in model.named_buffers() if name in before
    )
    assert not (finetune and statistics_changed)
    in_groups = [parameter for group in model.parameter_groups(0.1) for parameter in group["params"]]
    assert {id(p) for p in in_groups} == {id(p) for n, p in model.named_parameters() if n not in frozen}
    assert len(in_groups) == len({id(p) for p in in_groups})


@torch.inference_mode()
@pytest.mark.parametrize("name", ["vgg16", "resnet50", "mobilenetv2_100", "hrnet_w18_small"])
@pytest.mark.parametrize(("channels", "classes"), [(1, 1), (5, 300)])
def test_any_number_of_channels_and_classes(name: str, channels: int, classes: int) -> None:
    for build in (tagseg.build_model, tagseg.build_cam):
        out = build(name, classes, in_channels=channels).eval()(torch.randn(1, channels, 40, 40))
        assert out.scores.shape == (1, classes)
        assert out.masks.shape == (1, 1 + classes, 40, 40)


@pytest.mark.parametrize(
    "settings",
    [
        {"pooling": "gap"},
        {"pooling": "max"},
        {"pooling": "lse"},
        {"pooling": "gwp"},
        {"penalty": "none"},
        {"penalty": "plain"},
        {"penalty_p": 5.0},
        {"penalty_lambda": 0.1},
        {"gate": "stochastic-pixel"},
        {"gate": "deterministic"},
        {"gate": "none"},
        {"psi": 0.5},
        {"gci": False},
        {"gci": "paper"},
        {"width": 64},
    ],
    ids=str,
)
def test_every_setting_changes_the_result_and_is_saved(settings: dict[str, object], tmp_path: Path) -> None:
    def training_scores(network: Network) -> torch.Tensor:
        torch.manual_seed(1)
        scores: torch.Tensor = network.train()(images).scores
        return scores

    images = torch.randn(2, 3, 48, 48)
    torch.manual_seed(0)
    plain = tagseg.build_model("resnet18", 2)
    torch.manual_seed(0)
    changed = tagseg.build_model("resnet18", 2, **settings)
    tagseg.save_model(changed, tmp_path / "model.safetensors")
    assert not torch.equal(training_scores(plain), training_scores(changed))
    assert tagseg.load_model(tmp_path / "model.safetensors").config == changed.config
