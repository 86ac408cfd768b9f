"""Equality with the published networks: outputs, parameters, frozen layers, parameter groups and weight files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tagseg
from tagseg.models import Network
from tagseg.models.reference import reference_name
from tests.compare import assert_close
from tests.conftest import Reference
from tests.reference_networks import BACKBONES, reference_network, weights_by_name

AUTHORS_NAME = {"wideresnet38": "resnet38", "vgg16": "vgg16", "resnet50": "resnet50", "resnet101": "resnet101"}
each_network = pytest.mark.parametrize(
    ("backbone", "kind"), [(backbone, kind) for backbone in BACKBONES for kind in ("ae", "bsl")]
)


@each_network
def test_outputs_equal_the_reference(reference: Reference, backbone: str, kind: str) -> None:
    golden = reference(f"net_{AUTHORS_NAME[backbone]}_{kind}.npz")
    model = reference_network(backbone, kind).eval()
    with torch.inference_mode():
        out = model(golden["x"])
        skip, deep = model.backbone(golden["x"])
    assert_close(skip[:, :4], golden["conv3"])
    assert_close(deep[:, :4], golden["conv6"])
    assert_close(out.scores, golden["cls"])
    assert_close(out.masks, golden["masks"])


@each_network
def test_parameters_equal_the_reference(reference: Reference, backbone: str, kind: str) -> None:
    golden, name = reference("parameters.json"), f"{AUTHORS_NAME[backbone]}_{kind}"
    model = reference_network(backbone, kind)
    summary = parameter_summary(model, backbone)
    shapes = {
        key: shape for key, shape in golden[name].items() if key not in ("cls_branch.2.weight", "mask_branch.0.weight")
    }
    assert summary["shapes"] == shapes
    assert summary["frozen"] == sorted(golden[f"{name}_frozen"])
    assert summary["resting_norms"] == sorted(golden[f"{name}_bn_eval_in_training"])
    for group, expected in zip(summary["groups"], golden[f"{name}_groups"], strict=True):
        assert group == {**expected, "params": sorted(expected["params"])}


def parameter_summary(model: Network, backbone: str) -> dict[str, Any]:
    """Summarize the parameters of a network as parameters.json does, with the authors' names."""
    names = {id(parameter): reference_name(name, backbone) for name, parameter in model.named_parameters()}
    model.train()
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    norms_in_eval_mode = sorted(reference_name(name, backbone) for name, norm in norms.items() if not norm.training)
    model.eval()
    return {
        "shapes": {
            reference_name(name, backbone): list(tensor.shape)
            for name, tensor in model.state_dict().items()
            if not name.endswith("num_batches_tracked")
        },
        "frozen": sorted(names[id(p)] for p in model.parameters() if not p.requires_grad),
        "resting_norms": norms_in_eval_mode,
        "groups": [
            {
                "lr_mult": group["lr"],
                "weight_decay": group["weight_decay"],
                "params": sorted(names[id(parameter)] for parameter in group["params"]),
            }
            for group in model.parameter_groups(1.0)
        ],
    }


def write_authors_file(
    path: Path,
    model: Network,
    backbone: str,
    *,
    only: str = "",
    prefix: str = "",
    extra: dict[str, Tensor] | None = None,
) -> Path:
    """Write a file in the authors' format, with the tensors whose name in this package starts with `only`."""
    state = {
        prefix + reference_name(name, backbone): tensor.clone()
        for name, tensor in model.state_dict().items()
        if name.startswith(only)
    }
    torch.save({**state, **(extra or {})}, path)
    return path


@pytest.mark.parametrize("prefix", ["", "module."])
def test_loads_a_trained_network(tmp_path: Path, prefix: str) -> None:
    model = reference_network("resnet50", "ae")
    path = write_authors_file(tmp_path / "model_enc.pth", model, "resnet50", prefix=prefix)
    loaded = tagseg.load_reference_checkpoint(path, backbone="resnet50", psi=0.5).eval()
    assert isinstance(loaded, tagseg.Segmenter)
    assert loaded.config.psi == 0.5
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_loads_a_trained_baseline(tmp_path: Path) -> None:
    model = reference_network("vgg16", "bsl")
    weight = model.state_dict()["classifier.weight"]
    extra = {"cls_branch.2.weight": weight, "mask_branch.0.weight": weight}
    path = write_authors_file(tmp_path / "cam.pth", model, "vgg16", extra=extra)
    loaded = tagseg.load_reference_checkpoint(path, backbone="vgg16").eval()
    assert isinstance(loaded, tagseg.CAM)
    image = torch.randn(1, 3, 49, 65)
    with torch.inference_mode():
        assert torch.equal(loaded(image).masks, model(image).masks)


@pytest.mark.parametrize(
    ("backbone", "classifier"), [("wideresnet38", "linear1000"), ("resnet101", "fc"), ("vgg16", "fc8")]
)
def test_loads_imagenet_weights_without_their_classifier(tmp_path: Path, backbone: str, classifier: str) -> None:
    model = reference_network(backbone, "bsl")
    extra = {f"{classifier}.weight": torch.rand(1000, 10), f"{classifier}.bias": torch.rand(1000)}
    path = write_authors_file(tmp_path / "imagenet.pth", model, backbone, only="backbone.", extra=extra)
    loaded = tagseg.load_reference_checkpoint(path, backbone=backbone, classes=7)
    assert isinstance(loaded, tagseg.Segmenter)
    assert loaded.config.num_classes == 7
    for name, tensor in model.backbone.state_dict().items():
        assert torch.equal(loaded.backbone.state_dict()[name], tensor), name


@pytest.mark.parametrize("backbone", ["wideresnet38", "vgg16", "resnet50", "resnet101"])
def test_predictor_loads_a_reference_file(tmp_path: Path, backbone: str) -> None:
    model = reference_network(backbone, "ae")
    loaded = tagseg.load(write_authors_file(tmp_path / "model_enc.pth", model, backbone), precision="float32")
    assert loaded.description == {"name": "model_enc", "method": "single-stage", "backbone": backbone}
    assert loaded.settings.scales == ((1.0, 0.5, 1.5, 2.0) if backbone == "wideresnet38" else (1.0, 0.75, 1.25, 1.5))
    image = np.random.default_rng(0).integers(0, 256, (49, 65, 3), np.uint8)
    prediction = loaded.predict(image, size="native")
    with torch.inference_mode():
        scores = model.eval()(model.normalize(torch.from_numpy(image).permute(2, 0, 1)[None] / 255)).scores.sigmoid()
    assert np.allclose(list(prediction.scores.values()), scores[0].numpy(), atol=1e-4)


def test_predictor_refuses_imagenet_weights(tmp_path: Path) -> None:
    path = write_authors_file(tmp_path / "imagenet.pth", reference_network("vgg16", "bsl"), "vgg16", only="backbone.")
    with pytest.raises(ValueError, match="imagenet.pth holds ImageNet weights and no trained model; train one"):
        tagseg.load(path)
    torch.save({"weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="other.pth is not of the published implementation"):
        tagseg.load(tmp_path / "other.pth")


def test_mismatched_tensors_are_named(tmp_path: Path) -> None:
    model = reference_network("resnet50", "ae")
    path = write_authors_file(tmp_path / "broken.pth", model, "resnet50")
    state = torch.load(path, weights_only=True)
    del state["aspp.conv1.weight"]
    state["surprise.weight"] = torch.zeros(1)
    state["fc8_x.0.weight"] = torch.zeros(2, 2)
    torch.save(state, path)
    message = (
        r"broken.pth does not fit this network; 1 missing: aspp.project.0.weight; 1 unexpected: surprise.weight; "
        r"1 misshapen: fuse.0.weight \[2, 2\] instead of \[256, 304, 3, 3\]"
    )
    with pytest.raises(ValueError, match=message):
        tagseg.load_reference_checkpoint(path, backbone="resnet50")


def test_wrong_backbone_is_refused(tmp_path: Path) -> None:
    path = write_authors_file(tmp_path / "resnet50.pth", reference_network("resnet50", "ae"), "resnet50")
    with pytest.raises(ValueError, match=r"does not fit this network; .* missing: .* and \d+ more; .* unexpected: "):
        tagseg.load_reference_checkpoint(path, backbone="vgg16")
    with pytest.raises(ValueError, match="unknown backbone of the paper 'resnet18'; known: resnet101"):
        tagseg.load_reference_checkpoint(path, backbone="resnet18")


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "harmful.pth"
    torch.save({"weights": Path("/")}, path)
    with pytest.raises(ValueError, match="harmful.pth is not a readable file of weights"):
        tagseg.load_reference_checkpoint(path)


def test_generated_weights_are_deterministic() -> None:
    """Golden values depend on these weights."""
    weight = weights_by_name("layer.weight", torch.Size([2, 3, 1, 1]))
    assert weight.dtype == torch.float32
    assert torch.equal(weight, weights_by_name("layer.weight", torch.Size([2, 3, 1, 1])))
    assert weights_by_name("layer.running_var", torch.Size([50])).min() >= 1
