from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import tagseg
from tagseg.models import Network
from tagseg.models.serialization import read_notes, save_model
from tagseg.predict.predictor import load
from tagseg.predict.settings import InferenceSettings, WorkingSize, default_settings, size_for_crop, write_settings


def test_json_round_trip() -> None:
    sizes: list[WorkingSize] = [672, "native"]
    for size in sizes:
        settings = InferenceSettings(
            size=size, scales=(1.0, 2.0), flip=False, thresholds=(0.2, 0.3), thresholds_from="tags"
        )
        assert InferenceSettings.from_json(settings.to_json()) == settings


def test_settings_without_a_size_have_that_of_the_paper() -> None:
    assert InferenceSettings.from_json('{"scales": [1.0], "thresholds": 0.3}').size == 500


def test_working_size_follows_the_crop() -> None:
    assert [size_for_crop(crop) for crop in (448, 321, 602)] == [500, 358, 672]


def test_settings_are_saved_in_the_model_file(network: Network, tmp_path: Path) -> None:
    file = tmp_path / "photos" / "model.safetensors"
    file.parent.mkdir()
    save_model(network, file, notes={"trained": "on photos"})
    assert load(file.parent, device="cpu").settings == default_settings(network.config)
    settings = InferenceSettings(size=300, thresholds=(0.25, 0.5), thresholds_from="tags")
    write_settings(file, settings)
    loaded = load(file.parent, device="cpu")
    assert loaded.settings == settings
    assert loaded.description["name"] == "photos"
    assert read_notes(file)["trained"] == "on photos"


def test_weights_stay_as_they_are(network: Network, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_model(network, file, half=True)
    before = load_file(file)
    write_settings(file, InferenceSettings(thresholds=0.25, thresholds_from="user"))
    after = load_file(file)
    assert any(tensor.dtype == torch.float16 for tensor in after.values())
    assert before.keys() == after.keys()
    assert all(before[name].dtype == after[name].dtype and before[name].equal(after[name]) for name in before)


def test_defaults_are_those_of_the_paper() -> None:
    wide = default_settings(tagseg.ModelConfig(backbone="wideresnet38", class_names=("a",)))
    assert (wide.scales, wide.flip, wide.thresholds, wide.background_power) == ((1.0, 0.5, 1.5, 2.0), True, 0.1, 3.0)
    assert wide.size == 500
    cam = default_settings(tagseg.ModelConfig(backbone="resnet50", class_names=("a",), method="cam"))
    assert (cam.scales, cam.background_power) == ((1.0, 0.75, 1.25, 1.5), 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"thresholds_from": "mask"}, "Did you mean 'masks'"),
        ({"scales": ()}, "scales must be one or more"),
        ({"size": 0}, "size must be 'native' or a number of pixels from 32 for the longest side, got 0"),
        ({"size": 0.5}, "got 0.5"),
        ({"size": "500"}, "got '500'"),
        ({"thresholds": (0.1, 1.5)}, "scores from 0 to 1, got 1.5"),
        ({"background_power": 0.0}, "background_power must be above 0"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InferenceSettings(**arguments)  # type: ignore[arg-type]


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="Did you mean 'scales'"):
        InferenceSettings.from_json('{"scale": [1]}')


def test_wrong_number_of_thresholds_is_refused(network: Network, tmp_path: Path) -> None:
    save_model(network, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="got 1 thresholds for 2 classes"):
        write_settings(tmp_path / "model.safetensors", InferenceSettings(thresholds=(0.1,)))
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="other.safetensors has no tagseg configuration"):
        write_settings(tmp_path / "other.safetensors", InferenceSettings())
