import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import tagseg
from tagseg.data import MaskDataset, shapes, shapes_masks
from tagseg.evaluation.evaluate import evaluate
from tagseg.evaluation.metrics import ConfusionMatrix
from tagseg.evaluation.result import Evaluation
from tagseg.evaluation.tuning import best_background, tune_on_masks
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings

COUNT, SIZE = 5, 64
DATA, TRUTH = shapes(COUNT, size=SIZE), shapes_masks(COUNT, size=SIZE)
# In the middle of what random weights score, so that some classes are kept and some are not.
SETTINGS = InferenceSettings(scales=(1.0, 1.5), thresholds=0.2, thresholds_from="tags")


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    torch.manual_seed(0)
    return Predictor(tagseg.build_model("resnet18", DATA.classes), SETTINGS, device="cpu", precision="float32")


@pytest.fixture(scope="module")
def cam() -> Predictor:
    torch.manual_seed(0)
    return Predictor(tagseg.build_cam("resnet18", DATA.classes), device="cpu", precision="float32")


@pytest.fixture(scope="module")
def evaluation(predictor: Predictor) -> Evaluation:
    return evaluate(predictor, DATA, TRUTH, progress=False)


@pytest.mark.parametrize("tta", [False, True])
def test_both_protocols_are_those_of_predict(predictor: Predictor, tta: bool) -> None:
    both = evaluate(predictor, DATA, TRUTH, tta=tta, crf=tta, progress=False)
    for protocol in ("predicted-tags", "true-tags"):
        expected = ConfusionMatrix(7)
        for index, name in enumerate(DATA.image_ids):
            image, tags = DATA[index]
            names = [DATA.classes[k] for k in tags.nonzero().flatten()] if protocol == "true-tags" else None
            found = predictor.predict(image, tags=names, tta=tta, crf=tta)
            assert found.protocol == protocol
            expected.update(found.mask, TRUTH[name])
        # A batch may round differently from a single image, which can move a pixel.
        assert np.abs(both.confusion[protocol].counts - expected.counts).sum() <= 8
    assert (both.confusion["predicted-tags"].counts != both.confusion["true-tags"].counts).any()


def test_the_network_sees_each_image_once(predictor: Predictor) -> None:
    seen = []
    hook = predictor.engine.runner.register_forward_hook(lambda _module, args, _output: seen.append(len(args[0])))
    evaluate(predictor, DATA, TRUTH, progress=False)
    hook.remove()
    assert sum(seen) == COUNT


def test_masks_of_another_size_are_met(predictor: Predictor) -> None:
    def enlarged(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        return np.repeat(np.repeat(TRUTH[name], 2, 0), 3, 1)

    large = MaskDataset(DATA.classes, {name: lambda name=name: enlarged(name) for name in DATA.image_ids})  # type: ignore[misc]
    found = evaluate(predictor, DATA, large, progress=False)
    plain = evaluate(predictor, DATA, TRUTH, progress=False)
    assert found.confusion["true-tags"].counts.sum() == COUNT * SIZE * SIZE * 6
    assert np.allclose(found.confusion["true-tags"].iou, plain.confusion["true-tags"].iou, atol=0.05, equal_nan=True)


def test_ignored_pixels_and_missing_masks_are_left_out(predictor: Predictor) -> None:
    void = np.full((SIZE, SIZE), 255, dtype=np.uint8)
    void[:10] = 0
    found = evaluate(predictor, DATA, MaskDataset(DATA.classes, {DATA.image_ids[0]: lambda: void}), progress=False)
    assert (found.images, found.without_masks) == (1, COUNT - 1)
    assert found.confusion["true-tags"].counts.sum() == 10 * SIZE


def test_an_evaluation_survives_its_file(evaluation: Evaluation, tmp_path: Path) -> None:
    path = evaluation.save(tmp_path / "run")
    assert path.name == "evaluation.json"
    read = Evaluation.from_json(path.read_text())
    assert read.to_json() == evaluation.to_json()
    assert read.mean_iou("true-tags") == evaluation.mean_iou("true-tags")
    said = json.loads(path.read_text())
    assert list(said["protocols"]) == ["predicted-tags", "true-tags"]
    assert (said["images"], said["crf"], said["settings"]["scales"]) == (COUNT, False, [1.0])
    assert said["settings"]["thresholds_from"] == "tags"
    assert said["protocols"]["true-tags"]["mean"]["iou"] == evaluation.mean_iou("true-tags")
    without = said["protocols"]["true-tags"]["mean_without_background"]["iou"]
    assert without == evaluation.mean_iou("true-tags", background=False)


def test_a_class_that_does_not_occur_is_null(evaluation: Evaluation) -> None:
    counts = np.zeros((7, 7), dtype=np.int64)
    counts[0, 0] = 5
    said = json.loads(replace(evaluation, confusion={"true-tags": ConfusionMatrix(7, counts)}).to_json())
    measures = said["protocols"]["true-tags"]
    assert measures["per_class"]["disc"] == {"iou": None, "precision": None, "recall": None}
    assert measures["mean"]["iou"] == 1
    assert measures["classes_counted"] == 1


def printed(evaluation: Evaluation) -> str:
    console = Console(width=80, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        evaluation.print(console)
    return capture.get()


def test_the_table_names_protocols_and_settings(evaluation: Evaluation) -> None:
    text = printed(evaluation)
    for words in ("predicted-tags", "true-tags", "background", "disc", f"{COUNT} images", "scales 1", "CRF off"):
        assert words in text
    assert "thresholds 0.2 (tuned on image tags)" in text
    assert "MASKS" not in text
    one = ConfusionMatrix(7, np.diag([5, 5, 0, 0, 0, 0, 0]))
    assert "true-tags: 2 of 7 classes occur" in printed(replace(evaluation, confusion={"true-tags": one}))


def test_tuning_on_masks_is_said_loudly(predictor: Predictor) -> None:
    tuning = tune_on_masks(predictor, DATA, TRUTH, thresholds=(0.0, 0.2, 1.0), progress=False)
    assert tuning.settings.thresholds_from == "masks"
    assert tuning.mean_iou[tuning.best] == max(tuning.mean_iou.values())
    assert predictor.settings.thresholds_from == "tags"
    tuned = Predictor(predictor.engine.network, tuning.settings, device="cpu", precision="float32")
    found = evaluate(tuned, DATA, TRUTH, progress=False)
    assert found.mean_iou("predicted-tags") == pytest.approx(tuning.mean_iou[tuning.best], abs=1e-3)
    assert "TUNED ON MASKS" in printed(found)
    assert "TUNED ON MASKS" in json.loads(found.to_json())["caveat"]


@pytest.mark.parametrize("protocol", ["true-tags", "predicted-tags"])
def test_the_best_background_is_what_evaluate_measures(cam: Predictor, protocol: str) -> None:
    tuning = best_background(cam, DATA, TRUTH, (0.1, 0.3, 0.5), protocol=protocol, progress=False)
    assert tuning.settings.background == tuning.best
    for threshold, reached in tuning.mean_iou.items():
        tried = Predictor(
            cam.engine.network, replace(tuning.settings, background=threshold), device="cpu", precision="float32"
        )
        measured = evaluate(tried, DATA, TRUTH, progress=False).mean_iou(protocol)
        assert measured == pytest.approx(reached, abs=1e-3)


def test_only_cam_has_a_background_to_tune(predictor: Predictor, cam: Predictor) -> None:
    with pytest.raises(ValueError, match="best_background is for CAM"):
        best_background(predictor, DATA, TRUTH)
    with pytest.raises(ValueError, match="Did you mean 'true-tags'"):
        best_background(cam, DATA, TRUTH, protocol="true-tag")
    with pytest.raises(ValueError, match="no value to try"):
        best_background(cam, DATA.subset([0]), TRUTH, (), progress=False)


def test_classes_must_be_the_models(predictor: Predictor) -> None:
    turned = MaskDataset(DATA.classes[::-1], {name: lambda: np.zeros((4, 4), np.uint8) for name in DATA.image_ids})
    with pytest.raises(ValueError, match="the masks have the classes cross, ring"):
        evaluate(predictor, DATA, turned, progress=False)
    with pytest.raises(ValueError, match="none of the 5 images has a mask"):
        evaluate(predictor, DATA, MaskDataset(DATA.classes, {}), progress=False)


def test_a_network_alone_has_the_papers_settings(predictor: Predictor) -> None:
    found = evaluate(predictor.engine.network, DATA.subset([0]), TRUTH, progress=False)
    assert found.settings.thresholds == 0.1
