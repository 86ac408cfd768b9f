from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import tagseg
from tagseg.data import shapes
from tagseg.models import Network
from tagseg.models.serialization import read_notes, save_model
from tagseg.predict.predictor import Predictor, load
from tagseg.predict.settings import InferenceSettings, default_settings, write_settings
from tagseg.predict.thresholds import tune_on_tags, tune_thresholds


def test_settings_survive_json() -> None:
    chosen = InferenceSettings(scales=(1.0, 2.0), flip=False, thresholds=(0.2, 0.3), thresholds_from="tags")
    assert InferenceSettings.from_json(chosen.to_json()) == chosen


def test_settings_travel_in_the_models_file(network: Network, tmp_path: Path) -> None:
    file = tmp_path / "photos" / "model.safetensors"
    file.parent.mkdir()
    save_model(network, file, notes={"trained": "on photos"})
    assert load(file.parent, device="cpu").settings == default_settings(network.config)
    chosen = InferenceSettings(thresholds=(0.25, 0.5), thresholds_from="tags")
    write_settings(file, chosen)
    loaded = load(file.parent, device="cpu")
    assert loaded.settings == chosen
    assert loaded.description["name"] == "photos"
    assert read_notes(file)["trained"] == "on photos"


def test_defaults_are_the_papers() -> None:
    wide = default_settings(tagseg.ModelConfig(backbone="wideresnet38", class_names=("a",)))
    assert (wide.scales, wide.flip, wide.thresholds, wide.background_power) == ((1.0, 0.5, 1.5, 2.0), True, 0.1, 3.0)
    cam = default_settings(tagseg.ModelConfig(backbone="resnet50", class_names=("a",), method="cam"))
    assert (cam.scales, cam.background_power) == ((1.0, 0.75, 1.25, 1.5), 1.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"thresholds_from": "mask"}, "Did you mean 'masks'"),
        ({"scales": ()}, "scales must be one or more"),
        ({"thresholds": (0.1, 1.5)}, "scores from 0 to 1, got 1.5"),
        ({"background_power": 0.0}, "background_power must be above 0"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InferenceSettings(**wrong)  # type: ignore[arg-type]


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="Did you mean 'scales'"):
        InferenceSettings.from_json('{"scale": [1]}')


def test_a_threshold_too_few_is_refused(network: Network, tmp_path: Path) -> None:
    save_model(network, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="got 1 thresholds for 2 classes"):
        write_settings(tmp_path / "model.safetensors", InferenceSettings(thresholds=(0.1,)))


def test_thresholds_separate_what_can_be_separated() -> None:
    scores = [[0.9, 0.2, 0.5], [0.7, 0.6, 0.5], [0.3, 0.8, 0.5], [0.1, 0.4, 0.5]]
    tags = [[1, 0, 1], [1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert tune_thresholds(scores, tags) == pytest.approx((0.5, 0.5, 0.1))


def test_thresholds_are_tuned_on_tagged_images() -> None:
    data = shapes(6, size=64)
    torch.manual_seed(0)
    predictor = Predictor(tagseg.build_model("resnet18", data.classes), device="cpu", precision="float32")
    chosen = tune_on_tags(predictor, data)
    scores = [list(predictor.predict(data[index][0]).scores.values()) for index in range(len(data))]
    assert chosen.thresholds == pytest.approx(tune_thresholds(scores, data.labels), abs=1e-4)
    assert (chosen.thresholds_from, chosen.scales) == ("tags", predictor.settings.scales)
    with pytest.raises(ValueError, match="the images' tags have the classes disc"):
        tune_on_tags(Predictor(tagseg.build_model("resnet18", ["a"]), device="cpu", precision="float32"), data)


def test_a_class_without_positives_keeps_the_papers_threshold() -> None:
    assert tune_thresholds([[0.9], [0.8]], [[0], [0]]) == (0.1,)


@given(
    scores=arrays(np.float64, (12, 1), elements=st.integers(0, 20).map(lambda value: value / 20)),
    tags=arrays(np.int64, (12, 1), elements=st.integers(0, 1)),
)
@settings(max_examples=50, deadline=None)
def test_no_other_threshold_has_a_better_f1(scores: NDArray[np.float64], tags: NDArray[np.int64]) -> None:
    def f1(threshold: float) -> float:
        kept = scores >= threshold
        return float(2 * (kept & (tags == 1)).sum() / (kept.sum() + tags.sum()))

    (threshold,) = tune_thresholds(scores, tags)
    if 0 < tags.sum() < len(tags):
        assert f1(threshold) >= max(f1(other) for other in np.arange(0, 1.01, 0.05)) - 1e-9


def test_logits_are_not_scores() -> None:
    with pytest.raises(ValueError, match="apply the sigmoid first"):
        tune_thresholds([[3.0], [-1.0]], [[1], [0]])
    with pytest.raises(ValueError, match=r"got \[2, 1\] and \[1, 1\]"):
        tune_thresholds([[0.3], [0.1]], [[1]])
