"""Confidence of pixels, and the uncertainty of images that annotators should look at first."""

from dataclasses import replace

import numpy as np
import pytest

from tagseg.models import Network
from tagseg.predict.confidence import Confidence, class_presence, mean_confidence, uncertainty
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import WorkingSize
from tests.predict.conftest import KEEP_ALL, Pixels, wave_image


@pytest.mark.parametrize("crf", [False, True])
def test_confidence_is_the_share_of_the_pixels_class(predictor: Predictor, image: Pixels, crf: bool) -> None:
    prediction = predictor.predict(image, crf=crf)
    shares = prediction.probabilities / prediction.probabilities.sum(0)
    chosen = np.take_along_axis(shares, prediction.mask[None].astype(int), 0)[0]
    assert np.abs(prediction.confidence - chosen).max() <= 0.5 / 255 + 1e-6
    assert prediction.confidence.dtype == np.float32
    assert np.array_equal(np.array(prediction.confidence_image()), np.round(255 * prediction.confidence))
    summary = prediction.summary()
    assert summary["confidence"] == pytest.approx(prediction.confidence.mean())
    for entry in summary["classes"]:
        is_class = prediction.mask == entry["value"]
        assert entry["confidence"] == pytest.approx(prediction.confidence[is_class].mean())


def test_tiled_images_have_confidence_without_probabilities(network: Network) -> None:
    tiled = Predictor(network, KEEP_ALL, device="cpu", precision="float32", max_pixels=256 * 256)
    image = wave_image(300, 700)
    prediction, kept = tiled.predict(image), tiled.predict(image, probabilities=True)
    with pytest.raises(ValueError, match="pass probabilities=True"):
        _ = prediction.probabilities
    assert np.array_equal(prediction.confidence, kept.confidence)
    shares = kept.probabilities.max(0) / kept.probabilities.sum(0)
    assert np.abs(prediction.confidence - shares).max() < 0.01
    areas = np.sum(kept.probabilities / kept.probabilities.sum(0), axis=(1, 2))
    assert prediction._confidence.areas == pytest.approx(areas.tolist(), rel=1e-3)


@pytest.mark.parametrize("size", ["native", 48])
def test_image_without_a_class_is_as_uncertain_as_its_scores(predictor: Predictor, size: WorkingSize) -> None:
    strict = replace(KEEP_ALL, thresholds=(0.999, 0.999), size=size)
    prediction = Predictor(predictor.engine.network, strict, device="cpu", precision="float32").predict(
        wave_image(64, 80)
    )
    assert prediction.labels == ()
    assert (prediction.confidence == 1).all()
    presence = class_presence(list(prediction.scores.values()), (0.999, 0.999))
    assert prediction.uncertainty == pytest.approx(1 - 1 / (1 + presence.sum()))
    nearest = prediction.summary()["nearest_threshold"]
    assert nearest["score"] == max(prediction.scores.values())
    assert nearest["threshold"] == 0.999


def test_given_tags_leave_only_pixels_to_be_uncertain(predictor: Predictor, image: Pixels) -> None:
    assert predictor.predict(image, tags=[]).uncertainty == 0
    assert predictor.predict(image, tags=[]).summary()["nearest_threshold"] is None
    assert predictor.predict(image, tags=["cat"]).uncertainty > 0


def test_presence_is_even_at_the_threshold() -> None:
    scores, thresholds = [0.0, 0.1, 0.2, 0.4, 1.0], [0.2] * 5
    presence = class_presence(scores, thresholds)
    assert presence[2] == pytest.approx(0.5)
    assert (np.diff(presence) > 0).all()
    assert presence[0] == pytest.approx(0, abs=1e-4)
    assert presence[-1] == pytest.approx(1, abs=1e-4)
    assert np.isfinite(class_presence([0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0])).all()


def test_uncertainty_is_one_minus_the_expected_iou() -> None:
    mask = np.array([[1, 1, 0, 0]], np.uint8)
    certain = Confidence(np.full((1, 4), 255, np.uint8), (2.0, 2.0))
    one, both = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    assert uncertainty(mask, certain, one, (0,)) == 0
    assert uncertainty(mask, certain, both, (0,)) == pytest.approx(1 / 3)  # a class that is there has no pixel
    # Each pixel has its class with probability 0.8: 1.6 pixels in the intersection, 2 + 2 - 1.6 in the union.
    doubtful = Confidence(np.full((1, 4), 204, np.uint8), (2.0, 2.0))
    assert uncertainty(mask, doubtful, one, (0,)) == pytest.approx(1 - 1.6 / 2.4)
    wrong = Confidence(np.array([[128, 128, 255, 255]], np.uint8), (3.0, 1.0))
    assert 0 < uncertainty(mask, wrong, one, (0,)) < 1
    assert mean_confidence(mask, wrong.pixels, 1) == pytest.approx(128 / 255)
    assert mean_confidence(mask, wrong.pixels, 2) == 0
