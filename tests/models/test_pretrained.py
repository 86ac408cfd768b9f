from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from huggingface_hub import constants
from safetensors.torch import save_file

import tagseg
from tagseg.errors import ConfigError, WeightsError
from tests.compare import assert_close

NOBODY = "http://127.0.0.1:9"


def save(path: Path, module: torch.nn.Module, metadata: dict[str, str] | None = None, half: bool = False) -> Path:
    """Save all weights of a torchvision or timm model, including its classifier."""
    state = {
        name: tensor.half() if half and tensor.is_floating_point() else tensor
        for name, tensor in module.state_dict().items()
    }
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path, metadata)
    return path


def test_resnet_from_torchvision_layout(tmp_path: Path) -> None:
    net = torchvision.models.resnet50().eval()
    path = save(tmp_path / "resnet50.safetensors", net)
    backbone: Any = tagseg.build_model("resnet50", 2, pretrained=path).backbone.eval()
    image = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        skip = net.layer1(net.maxpool(net.relu(net.bn1(net.conv1(image)))))
        assert torch.equal(backbone(image)[0], skip)
        assert torch.equal(backbone.layer3(backbone.layer2(skip)), net.layer3(net.layer2(skip)))


def test_stride_in_the_file_is_used_and_saved(tmp_path: Path) -> None:
    """Weights with the stride on the 1x1 convolution load with either layout, so the file names its stride."""
    net = torchvision.models.resnet50()
    path = save(tmp_path / "msra.safetensors", net, {"stride_on": "conv1"}, half=True)
    model = tagseg.build_model("resnet50", 2, pretrained=str(path)).eval()
    backbone: Any = model.backbone
    assert (backbone.layer2[0].conv1.stride, backbone.layer2[0].conv2.stride) == ((2, 2), (1, 1))
    assert backbone.layer4[0].conv1.stride == backbone.layer4[0].conv2.stride == (1, 1)
    tagseg.save_model(model, tmp_path / "model.safetensors")
    (tmp_path / "other").touch()
    # The file has the default permissions.
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode
    loaded = tagseg.load_model(tmp_path / "model.safetensors")
    image = torch.randn(1, 3, 64, 64)
    other = tagseg.build_model("resnet50", 2)
    other.load_state_dict(model.state_dict())
    with torch.inference_mode():
        assert torch.equal(loaded(image).masks, model(image).masks)
        assert not torch.allclose(other.eval()(image).masks, model(image).masks, atol=1e-4)


def test_vgg_from_torchvision_layout_warns_about_random_layers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = torchvision.models.vgg16().eval()
    features = torch.nn.ModuleDict({"features": net.features})
    model = tagseg.build_cam("vgg16", 2, pretrained=save(tmp_path / "vgg.safetensors", features))
    assert "no weights for fc6.weight, fc6.bias, fc7.weight, fc7.bias: they stay random" in caplog.text
    assert torch.equal(model.state_dict()["backbone.features.28.weight"], net.features[28].weight)


def test_mobilenet_from_torchvision_layout(tmp_path: Path) -> None:
    net = torchvision.models.mobilenet_v2().eval()
    for name, buffer in net.named_buffers():  # so that running statistics affect the output
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    path = save(tmp_path / "mobilenet.safetensors", net)
    backbone: Any = tagseg.build_cam("mobilenetv2_100", 2, pretrained=path).backbone.eval()
    image = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        assert_close(backbone(image)[0], net.features[:4](image))
    # The last stage differs in dilation alone; its weights are the same.
    assert torch.equal(backbone.net.blocks[6][0].conv_pwl.weight, net.features[17].conv[2].weight)


def test_efficientnet_from_efficientnet_pytorch_layout(tmp_path: Path) -> None:
    net: Any = timm.create_model("tf_efficientnet_lite0", features_only=True).eval()
    names = {"conv_stem": "_conv_stem", "bn1": "_bn0"}
    first = {"conv_dw": "_depthwise_conv", "bn1": "_bn1", "conv_pw": "_project_conv", "bn2": "_bn2"}
    later = {
        "conv_pw": "_expand_conv",
        "bn1": "_bn0",
        "conv_dw": "_depthwise_conv",
        "bn2": "_bn1",
        "conv_pwl": "_project_conv",
        "bn3": "_bn2",
    }
    number = 0
    for stage, blocks in enumerate(net.blocks):
        for index in range(len(blocks)):
            layers = first if stage == 0 else later
            names |= {
                f"blocks.{stage}.{index}.{name}": f"_blocks.{number}.{source_name}"
                for name, source_name in layers.items()
            }
            number += 1
    state = {
        f"{names[key.rpartition('.')[0]]}.{key.rpartition('.')[2]}": tensor.clone()
        for key, tensor in net.state_dict().items()
    }
    state |= {
        "_fc.weight": torch.rand(1000, 1280),
        "_conv_head.weight": torch.rand(1280, 320, 1, 1),
        "_bn1.bias": torch.rand(1280),
    }
    path = tmp_path / "efficientnet.safetensors"
    save_file(state, path)
    backbone: Any = tagseg.build_cam("tf_efficientnet_lite0", 2, pretrained=path).backbone.eval()
    for name, tensor in net.state_dict().items():
        assert torch.equal(backbone.net.state_dict()[name], tensor), name
    with pytest.raises(ValueError, match="TensorFlow's padding, which efficientnet_lite0 does not have"):
        tagseg.build_cam("efficientnet_lite0", 2, pretrained=path)


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "mobilenetv2_100",
        "efficientnet_lite0",
        "convnext_tiny",
        "densenet121",
        "regnety_002",
        "hrnet_w18_small",
    ],
)
def test_timm_layout(tmp_path: Path, name: str) -> None:
    """Every weight of the backbone comes from timm's classification model, and a missing one is an error."""
    net: Any = timm.create_model(name).eval()
    model = tagseg.build_cam(name, 2, pretrained=save(tmp_path / "weights.safetensors", net))
    assert model.config.finetune
    backbone_sums = sorted(
        float(t.double().sum()) for k, t in model.backbone.state_dict().items() if k.endswith("weight")
    )
    timm_sums = [float(t.double().sum()) for k, t in net.state_dict().items() if k.endswith("weight")]
    assert all(value in timm_sums for value in backbone_sums)
    broken = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    broken.pop(next(key for key in broken if key.endswith("weight")))
    save_file(broken, tmp_path / "broken.safetensors")
    with pytest.raises(ValueError, match="1 missing: "):
        tagseg.build_cam(name, 2, pretrained=tmp_path / "broken.safetensors")


@pytest.mark.parametrize("channels", [1, 4])
def test_rgb_filters_are_adapted_to_other_channels(tmp_path: Path, channels: int) -> None:
    net = torchvision.models.resnet50()
    path = save(tmp_path / "resnet50.safetensors", net)
    model = tagseg.build_cam("resnet50", 2, in_channels=channels, pretrained=path)
    weight = model.state_dict()["backbone.conv1.weight"]
    assert weight.shape[1] == channels
    if channels == 1:  # a gray image gives the same features as its RGB copy
        assert_close(weight, net.conv1.weight.sum(1, keepdim=True))


@pytest.mark.parametrize(
    ("backbone", "pretrained", "message"),
    [
        ("resnet50", "nowhere.safetensors", "no file of weights at nowhere.safetensors"),
        (
            "resnet50",
            "IMAGENET1K_V3",
            "unknown weights for resnet50 'IMAGENET1K_V3'; known: IMAGENET1K_V1, IMAGENET1K_V2",
        ),
        ("wideresnet38", True, "no registry has ImageNet weights for wideresnet38; name the authors' .pth file"),
        (
            "resnet18",
            "defualt",
            "neither true nor default, a run folder or a .safetensors or .pth file; name one of them",
        ),
        ("resnet18", "imagenet", "timm's weights are chosen by the backbone's tag, for example resnet18.TAG"),
    ],
)
def test_unknown_weights_are_named(backbone: str, pretrained: bool | str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tagseg.build_model(backbone, 2, pretrained=pretrained)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    for name in ("broken.safetensors", "broken.pth"):
        (tmp_path / name).write_bytes(b"this is not a file of weights")
        with pytest.raises(ValueError, match=f"{name} is not a readable file of weights"):
            tagseg.build_model("resnet18", 2, pretrained=tmp_path / name)
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="list.pth does not hold a dictionary of tensors"):
        tagseg.build_model("resnet18", 2, pretrained=tmp_path / "list.pth")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="other.safetensors has no tagseg configuration"):
        tagseg.load_model(tmp_path / "other.safetensors")


def test_cached_download_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache has the file name of torchvision's registry."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    url = torchvision.models.ResNet50_Weights.IMAGENET1K_V1.url
    net = torchvision.models.resnet50()
    torch.save(net.state_dict(), tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2])
    model = tagseg.build_cam("resnet50", 2, pretrained=True)  # from the cache
    assert torch.equal(model.state_dict()["backbone.conv1.weight"], net.conv1.weight)


def test_timm_network_without_weights_is_named() -> None:
    with pytest.raises(ConfigError, match="timm has no weights for seresnet18; name a file with"):
        tagseg.build_model("seresnet18", 2, pretrained=True)


@pytest.mark.parametrize("backbone", ["resnet18", "tf_efficientnet_lite0"])
def test_weights_that_do_not_fit_are_no_failed_download(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_model = timm.create_model

    def create_other(name: str, *, pretrained: bool = False, **options: Any) -> Any:
        return create_model("resnet34" if pretrained else name, **options)

    monkeypatch.setattr(timm, "create_model", create_other)
    with pytest.raises(RuntimeError, match="loading state_dict"):
        tagseg.build_model(backbone, 2, pretrained=True)


@pytest.fixture
def _without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Servers that nobody answers, empty caches, and a client that must not wait to try again."""
    monkeypatch.setattr(constants, "ENDPOINT", NOBODY)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    weights = torchvision.models.ResNet50_Weights.IMAGENET1K_V1.value
    monkeypatch.setattr(weights, "url", weights.url.replace("https://download.pytorch.org", NOBODY))
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: pytest.fail("it waits to try again"))


@pytest.mark.usefixtures("_without_network")
@pytest.mark.parametrize("name", ["resnet50", "test_resnet", "test_vit"])
def test_failed_download_says_what_to_do(name: str) -> None:
    with pytest.raises(WeightsError, match=f"weights of {name} could not be .*{NOBODY}.* be reached") as error:
        tagseg.build_cam(name, 2, pretrained=True)
    assert "--set model.pretrained=PATH" in error.value.for_cli()
    assert "--set model.pretrained=default" in error.value.for_cli()
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("_without_network")
def test_cached_weights_of_the_hub_load_without_a_network(tmp_path: Path) -> None:
    net: Any = timm.create_model("test_resnet")
    repository = tmp_path / f"models--{net.pretrained_cfg['hf_hub_id'].replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save(repository / "snapshots" / ("0" * 40) / "model.safetensors", net)
    model = tagseg.build_cam("test_resnet", 2, pretrained=True)
    assert any(torch.equal(value, net.conv1[0].weight) for value in model.backbone.state_dict().values())
