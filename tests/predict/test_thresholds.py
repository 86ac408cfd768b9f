import numpy as np
import pytest
import torch
from hypothesis import given, settings as hypothesis_settings, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import tagseg
from tagseg.data import shapes
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings
from tagseg.predict.thresholds import tune_on_tags, tune_thresholds


def test_thresholds_separate_separable_scores() -> None:
    scores = [[0.9, 0.2, 0.5], [0.7, 0.6, 0.5], [0.3, 0.8, 0.5], [0.1, 0.4, 0.5]]
    tags = [[1, 0, 1], [1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert tune_thresholds(scores, tags) == pytest.approx((0.5, 0.5, 0.1))


def test_thresholds_are_tuned_on_tagged_images() -> None:
    data = shapes(6, size=64)
    torch.manual_seed(0)
    network, settings = tagseg.build_model("resnet18", data.classes), InferenceSettings(size="native")
    predictor = Predictor(network, settings, device="cpu", precision="float32")
    batch_sizes: list[int] = []
    hook = predictor.engine.runner.register_forward_hook(
        lambda _module, args, _output: batch_sizes.append(len(args[0]))
    )
    settings = tune_on_tags(predictor, data)
    hook.remove()
    assert batch_sizes == [predictor.engine.batch_size] * len(data)
    scores = [list(predictor.predict(data[index][0]).scores.values()) for index in range(len(data))]
    assert settings.thresholds == pytest.approx(tune_thresholds(scores, data.labels), abs=1e-4)
    assert (settings.thresholds_from, settings.scales) == ("tags", predictor.settings.scales)
    with pytest.raises(ValueError, match="the images' tags have the classes disc"):
        tune_on_tags(Predictor(tagseg.build_model("resnet18", ["a"]), device="cpu", precision="float32"), data)


def test_class_without_positives_has_the_threshold_of_the_paper() -> None:
    assert tune_thresholds([[0.9], [0.8]], [[0], [0]]) == (0.1,)


@given(
    scores=arrays(np.float64, (12, 1), elements=st.integers(0, 20).map(lambda value: value / 20)),
    tags=arrays(np.int64, (12, 1), elements=st.integers(0, 1)),
)
@hypothesis_settings(max_examples=50, deadline=None)
def test_tuned_threshold_has_the_best_f1(scores: NDArray[np.float64], tags: NDArray[np.int64]) -> None:
    def f1(threshold: float) -> float:
        predicted = scores >= threshold
        return float(2 * (predicted & (tags == 1)).sum() / (predicted.sum() + tags.sum()))

    (threshold,) = tune_thresholds(scores, tags)
    if 0 < tags.sum() < len(tags):
        assert f1(threshold) >= max(f1(other) for other in np.arange(0, 1.01, 0.05)) - 1e-9


def test_wrong_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="apply the sigmoid first"):
        tune_thresholds([[3.0], [-1.0]], [[1], [0]])
    with pytest.raises(ValueError, match=r"got \[2, 1\] and \[1, 1\]"):
        tune_thresholds([[0.3], [0.1]], [[1]])
