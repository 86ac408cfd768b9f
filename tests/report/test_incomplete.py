"""Runs that lack something, or have something that a reader must be told of."""

from dataclasses import replace
from pathlib import Path

from tagseg.evaluation import Evaluation
from tagseg.models.files import MODEL_FILE
from tagseg.predict import load, read_settings, write_settings
from tagseg.report import write_page
from tests.report.parsed import Page
from tests.report.runs import SECTIONS, STAGES, TRUTH, VALIDATION, train


def test_default_place_and_an_evaluation_in_the_folder(run: Path, evaluation: Evaluation) -> None:
    evaluation.save(run)
    path = write_page(run, images=None)
    assert path == run / "report.html"
    page = Page(path)
    assert "Per class, true-tags" in page.text
    assert "No images were given" in page.text
    assert page.images == []


def test_settings_tuned_on_masks_are_a_visible_warning(run: Path, evaluation: Evaluation) -> None:
    model = run / MODEL_FILE
    tuned = replace(read_settings(model, load(run).engine.network.config), thresholds_from="masks")
    write_settings(model, tuned)
    page = Page(write_page(run, images=None, evaluations=[evaluation, replace(evaluation, settings=tuned)]))
    assert "Tuned on masks: the model's own settings, evaluation 2." in page.text
    assert page.with_class("warning") == ["p", "p"]


def test_without_metrics_truth_and_evaluation(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    page = Page(write_page(run, images=VALIDATION, count=1))
    assert page.sections == SECTIONS
    assert [alt.partition(":")[0] for alt in page.images[:4]] == [f"val-00000, {stage}" for stage in STAGES[:4]]
    for words in ("Nothing has been logged yet", "There are no true masks", "No evaluation"):
        assert words in page.text


def test_before_the_first_epoch_has_ended(run: Path) -> None:
    (run / MODEL_FILE).unlink()
    (run / "checkpoint.safetensors").unlink()
    (run / "metrics.jsonl").write_text(
        '{"kind": "train", "step": 10, "epoch": 1, "loss": 0.7, "classification": 0.7}\n'
    )
    page = Page(write_page(run, images=VALIDATION, ground_truth=TRUTH))
    assert page.sections == [name for name in SECTIONS if name != "refinement"]
    assert "There is no model yet" in page.text
    assert "0 of 2 epochs so far" in page.text
    assert len(page.with_class("chart")) == 1


def test_values_that_are_missing_leave_gaps(run: Path) -> None:
    lines = ['{"kind": "validation", "step": 3, "epoch": 1, "loss": null, "mAP": null}']
    lines.append('{"kind": "validation", "step": 6, "epoch": 2, "loss": 0.5, "mAP": null}')
    (run / "metrics.jsonl").write_text("\n".join(lines))
    text = Page(write_page(run, images=None)).text
    assert "Validation loss" in text
    assert "mean average precision" not in text


def test_cam_shows_its_masks_and_says_so(tmp_path: Path) -> None:
    cam = train(tmp_path / "cam", "model.method=cam", "validation.checkpoint=best", epochs=1)
    page = Page(write_page(cam, images=VALIDATION, ground_truth=TRUTH, count=2))
    assert page.sections == [name for name in SECTIONS if name != "refinement"]
    assert "It has no refinement and no pseudo labels" in page.text
    assert "The model is the network of epoch 1, which has the lowest validation loss: that needs" in page.text
    stages = [alt.partition(":")[0].split(", ")[1] for alt in page.images]
    assert stages == ["input", "CAM masks", "ground truth"] * 2
    assert "phase" not in {name for _, attributes in page.elements for name in (attributes.get("class") or "").split()}


def test_a_run_without_refinement_has_pseudo_labels_only(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain", "pseudo_labels.refine=none", epochs=1)
    page = Page(write_page(plain, images=VALIDATION, count=1))
    assert [alt.partition(":")[0].split(", ")[1] for alt in page.images] == ["input", "prediction", "pseudo label"]
    assert "does not refine" in page.text
