import json

import pytest

import tagseg
from tagseg.errors import ConfigError
from tagseg.models import ModelConfig, Network


def test_config_of_a_built_network_has_no_automatic_values() -> None:
    config = tagseg.build_model("resnet18", ["cat", "dog"]).config
    assert None not in config.model_dump().values()
    assert (config.class_names, config.finetune, config.gci, config.pretrained) == (("cat", "dog"), False, True, False)


def test_finetune_is_automatic_with_pretrained_weights() -> None:
    assert ModelConfig(pretrained="weights.pth").resolve().finetune is True
    assert ModelConfig(pretrained=False).resolve().finetune is False
    assert ModelConfig(pretrained=False, finetune=True).resolve().finetune is True


def test_gci_is_automatic_with_a_gate() -> None:
    assert ModelConfig().resolve().gci is True
    assert ModelConfig(gate="none").resolve().gci is False


def test_json_round_trip() -> None:
    config = ModelConfig(backbone="vgg16", gci="paper", class_names=("a", "b")).resolve()
    assert ModelConfig.from_json(config.to_json()) == config


def test_json_of_earlier_versions_is_read() -> None:
    """Missing fields have their defaults, and no pretrained weights are needed."""
    config = ModelConfig.from_json('{"backbone": "vgg16", "class_names": ["a"], "finetune": true}')
    assert (config.backbone, config.class_names, config.pretrained, config.width) == ("vgg16", ("a",), False, 256)


@pytest.mark.parametrize("text", ["[]", "nonsense", "[" * 200_000, '{"class_names": 3}', '{"widht": 16}'])
def test_damaged_json_gives_a_one_line_error(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        ModelConfig.from_json(text)
    assert "\n" not in str(error.value)


def test_network_has_its_config() -> None:
    network: Network = tagseg.build_cam("resnet18", 2, background=0.2)
    assert json.loads(network.config.to_json())["background"] == 0.2
    assert network.config.method == "cam"
