import json
from dataclasses import replace

import pytest

from tagseg.evaluation.evaluate import evaluate
from tagseg.evaluation.mask_tuning import best_background, tune_on_masks
from tagseg.predict.predictor import Predictor
from tests.evaluation.conftest import DATA, MASKS, print_to_text


def test_tuning_on_masks_is_marked(predictor: Predictor) -> None:
    tuning = tune_on_masks(predictor, DATA, MASKS, thresholds=(0.0, 0.2, 1.0), progress=False)
    assert tuning.settings.thresholds_from == "masks"
    assert tuning.mean_iou[tuning.best] == max(tuning.mean_iou.values())
    assert predictor.settings.thresholds_from == "tags"
    tuned = Predictor(predictor.engine.network, tuning.settings, device="cpu", precision="float32")
    result = evaluate(tuned, DATA, MASKS, progress=False)
    assert result.mean_iou("predicted-tags") == pytest.approx(tuning.mean_iou[tuning.best], abs=1e-3)
    assert "TUNED ON MASKS" in print_to_text(result)
    assert "TUNED ON MASKS" in json.loads(result.to_json())["caveat"]


def test_batch_size_must_be_positive(predictor: Predictor) -> None:
    with pytest.raises(ValueError, match="batch_size must be 1 or more, got 0"):
        tune_on_masks(predictor, DATA, MASKS, batch_size=0)


@pytest.mark.parametrize("protocol", ["true-tags", "predicted-tags"])
def test_best_background_equals_evaluate(cam: Predictor, protocol: str) -> None:
    tuning = best_background(cam, DATA, MASKS, (0.1, 0.3, 0.5), protocol=protocol, progress=False)
    assert tuning.settings.background == tuning.best
    for background, mean_iou in tuning.mean_iou.items():
        predictor = Predictor(
            cam.engine.network, replace(tuning.settings, background=background), device="cpu", precision="float32"
        )
        measured = evaluate(predictor, DATA, MASKS, progress=False).mean_iou(protocol)
        assert measured == pytest.approx(mean_iou, abs=1e-3)


def test_best_background_needs_cam_and_valid_arguments(predictor: Predictor, cam: Predictor) -> None:
    with pytest.raises(ValueError, match="best_background is for CAM"):
        best_background(predictor, DATA, MASKS)
    with pytest.raises(ValueError, match="Did you mean 'true-tags'"):
        best_background(cam, DATA, MASKS, protocol="true-tag")
    with pytest.raises(ValueError, match="no value to try"):
        best_background(cam, DATA.subset([0]), MASKS, (), progress=False)
