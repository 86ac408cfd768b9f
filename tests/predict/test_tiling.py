from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

import tagseg
from tagseg.benchmarks.timing import PeakBytes
from tagseg.models import Network, Segmentation
from tagseg.models.backbones import build_backbone
from tagseg.models.config import ModelConfig
from tagseg.models.pooling import with_background
from tagseg.predict.predictor import Predictor
from tagseg.predict.tiling import OVERLAP, blend_weights, plan_tiles
from tests.predict.conftest import KEEP_ALL, wave_image


class PixelwiseNetwork(Network):
    """A network with a receptive field of one pixel, so that tiles do not change its output."""

    def __init__(self, classes: int) -> None:
        config = ModelConfig(backbone="resnet18", class_names=tuple(f"class {k}" for k in range(classes)))
        super().__init__(config, build_backbone("resnet18"))
        self.classify = nn.Conv2d(3, classes, 1)

    def forward(self, x: Tensor, *, full_size: bool = True) -> Segmentation:  # noqa: ARG002  the output has the input's size
        logits = with_background(self.classify(x))
        return Segmentation(logits[:, 1:].amax((2, 3)), logits.softmax(1), logits)


@given(height=st.integers(1, 3000), width=st.integers(1, 3000), side=st.integers(256, 2000))
@settings(max_examples=100, deadline=None)
def test_tiles_cover_the_image_and_overlap(height: int, width: int, side: int) -> None:
    grid = plan_tiles(height, width, side * side)
    assert grid.size == (height, width)
    for spans in (grid.rows, grid.columns):
        assert spans[0][0] == 0
        assert all(before[1] - after[0] >= OVERLAP for before, after in pairwise(spans))
        total = torch.zeros(spans[-1][1])
        for (start, end), weights in zip(spans, blend_weights(spans), strict=True):
            assert (weights > 0).all()
            total[start:end] += weights
        assert torch.allclose(total, torch.ones_like(total))
    (top, bottom), (left, right) = next(iter(grid))
    assert (bottom - top) * (right - left) <= side * side


def test_small_image_is_one_tile() -> None:
    assert len(plan_tiles(100, 40000, 2048 * 2048)) == 1
    assert len(plan_tiles(2048, 2049, 2048 * 2048)) == 2


def test_tiled_prediction_equals_the_whole_image() -> None:
    network = PixelwiseNetwork(3)
    image = wave_image(700, 500)
    whole = Predictor(network, KEEP_ALL, device="cpu", precision="float32").predict(image)
    tiled = Predictor(network, KEEP_ALL, device="cpu", precision="float32", max_pixels=256 * 256).predict(
        image, probabilities=True
    )
    assert np.abs(whole.probabilities - tiled.probabilities).max() < 1e-5
    assert (whole.mask == tiled.mask).mean() > 0.9999
    assert tiled.scores == pytest.approx(whole.scores)


def test_tiled_prediction_of_a_segmenter_is_close_to_the_whole_image(network: Network) -> None:
    image = wave_image(400, 300)
    whole = Predictor(network, KEEP_ALL, device="cpu", precision="float32").predict(image)
    tiled = Predictor(network, KEEP_ALL, device="cpu", precision="float32", max_pixels=256 * 256).predict(
        image, probabilities=True
    )
    assert np.abs(whole.probabilities - tiled.probabilities).mean() < 0.05
    steps = np.abs(np.diff(tiled.probabilities, axis=1)).max((0, 2))  # from each row to the next
    assert steps.max() < 2 * np.abs(np.diff(whole.probabilities, axis=1)).max()


def test_memory_of_a_large_image_does_not_hold_all_classes() -> None:
    image = wave_image(1000, 256)
    network = tagseg.build_model("resnet18", 100)
    predictor = Predictor(network, KEEP_ALL, device="cpu", precision="float32", max_pixels=256 * 256)
    with PeakBytes() as memory:
        prediction = predictor.predict(image, tags=["class 1", "class 2"])
    assert memory.peak < 101 * image.shape[0] * image.shape[1] * 4 * 2 / 3
    assert prediction.mask.shape == image.shape[:2]
    with pytest.raises(ValueError, match="pass probabilities=True"):
        _ = prediction.probabilities


def test_tiles_beyond_the_cache_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor(PixelwiseNetwork(3), KEEP_ALL, device="cpu", precision="float32", max_pixels=256 * 256)
    expected = predictor.predict(wave_image(600, 256)).mask
    monkeypatch.setattr("tagseg.predict.engine._MAX_TTA_VALUES", 4 * 256 * 256)
    assert np.array_equal(predictor.predict(wave_image(600, 256)).mask, expected)


def test_cam_gets_large_images_downscaled() -> None:
    cam = tagseg.build_cam("resnet18", ["a", "b"])
    prediction = Predictor(cam, KEEP_ALL, device="cpu", precision="float32", max_pixels=256 * 256).predict(
        wave_image(300, 500)
    )
    assert prediction.mask.shape == (300, 500)
    assert prediction.settings.scales[0] < 1
