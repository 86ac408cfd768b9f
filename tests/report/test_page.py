"""Report pages of complete and incomplete runs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tagseg._hub import MODEL_FILE
from tagseg.data import shapes
from tagseg.errors import ConfigError, DataError
from tagseg.evaluation import Evaluation
from tagseg.predict import load, read_settings, write_settings
from tagseg.report import write_page
from tests.report.html_page import ParsedPage
from tests.report.small_runs import CLASSES, IMAGES, MASKS, SECTIONS, SIZE, STAGES, TRAIN_IMAGES, train


def test_page_has_every_section_in_order(full_page: Path) -> None:
    assert ParsedPage(full_page).sections == SECTIONS


def test_page_is_self_contained(full_page: Path) -> None:
    page = ParsedPage(full_page)
    links = [attributes[key] or "" for _, attributes in page.elements for key in ("src", "href") if key in attributes]
    assert links
    assert all(link.startswith(("data:image/", "#")) for link in links)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.elements}
    assert not re.search(r"https?:|url\(|@import", full_page.read_text())
    assert full_page.stat().st_size < 3_000_000


def test_page_is_deterministic(run: Path) -> None:
    first = write_page(run, images=IMAGES, count=1).read_text()
    assert write_page(run, images=IMAGES, count=1).read_text() == first


def test_diagnosis_and_tags_to_check_lead_the_page(full_page: Path) -> None:
    page = ParsedPage(full_page)
    assert "Classes with few training images: " in page.text
    assert f"{CLASSES[1]} (" in page.text
    assert "The model was run on all 24 training images and all 12 validation images." in page.text
    assert "The model contradicts no tag of all 24 training images and all 12 validation images." in page.text


def test_navigation_leads_to_every_section(full_page: Path, run: Path) -> None:
    for page in (ParsedPage(full_page), ParsedPage(write_page(run, images=None))):
        assert [(attributes["href"] or "").removeprefix("#") for attributes in page.all("a")] == page.sections


def test_ids_are_unique_and_references_resolve(run: Path, evaluation: Evaluation) -> None:
    evaluation.save(run)
    page = ParsedPage(write_page(run, images=IMAGES, count=1))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {(attributes["href"] or "").removeprefix("#") for attributes in page.all("use")} <= set(ids)


def test_images_are_shown_at_every_stage_and_two_by_iteration(full_page: Path) -> None:
    images = ParsedPage(full_page).images
    image_ids = ["val-00000", "val-00003", "val-00006", "val-00009"]
    expected = [(name, stage) for name in image_ids for stage in STAGES]
    steps = ["prediction", "1 iteration", *(f"{count} iterations" for count in (3, 5, 7, 10)), "ground truth"]
    expected += [(name, step) for name in ("val-00000", "val-00009") for step in steps]
    assert [tuple(alt.partition(":")[0].split(", ")) for alt in images] == expected
    assert all(len(alt.split(": ")) == 2 for alt in images if "input" not in alt)


def test_selection_and_tags_of_the_images_are_stated(full_page: Path) -> None:
    text = ParsedPage(full_page).text
    assert "4 of 12 validation images, evenly spaced over their IDs" in text
    tags = [CLASSES[k] for k in IMAGES.labels[0].nonzero()[:, 0].tolist()]
    assert re.search(r"val-00000 tags " + re.escape(tags[0]), text)


def test_class_names_are_escaped(full_page: Path) -> None:
    page = ParsedPage(full_page)
    assert "<b>disc" not in full_page.read_text()
    assert all(name in page.text for name in CLASSES)


def test_run_and_image_names_are_escaped(run: Path) -> None:
    hostile = '<script>alert("1")</script>'
    renamed = run.rename(run.parent / '<i>run & "co"')
    names = (hostile, *IMAGES.image_ids[1:])
    images = type(IMAGES)(CLASSES, names, IMAGES.labels, IMAGES.images)
    page = ParsedPage(write_page(renamed, images=images, count=1))
    assert not {"script", "i"} & {tag for tag, _ in page.elements}
    assert '<i>run & "co"' in page.text
    assert hostile in page.text
    assert page.images[0] == f"{hostile}, input"


def test_summary_describes_the_run(full_page: Path) -> None:
    text = ParsedPage(full_page).text
    for expected_text in (
        "test_resnet",
        "6 classes",
        "24 training images",
        "12 validation images",
        "2 epochs (last checkpoint: epoch 2)",
    ):
        assert expected_text in text


def test_protocols_are_named_with_their_numbers(full_page: Path, evaluation: Evaluation) -> None:
    text = ParsedPage(full_page).text
    for protocol in ("predicted-tags", "true-tags"):
        assert f"Per class, {protocol}" in text
        assert f"Confusion, {protocol}" in text
        assert f"{protocol} {100 * evaluation.mean_iou(protocol):.1f} %" in text
    assert "Numbers of different protocols cannot be compared" in text
    assert "Warning" not in text


def test_dataset_counts_the_tags(full_page: Path) -> None:
    text = ParsedPage(full_page).text
    counts = [data.labels.sum(0).int().tolist() for data in (TRAIN_IMAGES, IMAGES)]
    for name, train_count, val_count in zip(CLASSES, *counts, strict=True):
        shares = f"{train_count} ({100 * train_count / 24:.1f} %) {val_count} ({100 * val_count / 12:.1f} %)"
        assert f"{name} {shares}" in text
    assert "Co-occurrence of tags, training images" in text
    assert "Co-occurrence of tags, validation images" in text


def test_configuration_is_complete(full_page: Path) -> None:
    page = ParsedPage(full_page)
    assert "All settings of this run" in page.text
    for expected_text in (
        "penalty_lambda 0.01",
        "dilations 1, 2, 4, 8, 12, 24",
        "data shapes",
        f"torch {torch.__version__}"[:10],
    ):
        assert expected_text in page.text


def test_charts_regions_and_tables_are_accessible(full_page: Path) -> None:
    page = ParsedPage(full_page)
    for tag, attributes in page.elements:
        if attributes.get("role") in ("img", "region"):
            assert attributes.get("aria-label"), tag
        if tag == "svg":
            assert attributes.get("role") == "img" or attributes.get("aria-hidden") == "true"
        if tag == "th":
            assert attributes.get("scope") in ("row", "col")


def test_tuning_on_masks_is_a_visible_warning(run: Path, evaluation: Evaluation) -> None:
    model = run / MODEL_FILE
    tuned = replace(read_settings(model, load(run).engine.network.config), thresholds_from="masks")
    write_settings(model, tuned)
    replace(evaluation, settings=tuned).save(run)
    page = ParsedPage(write_page(run, images=None))
    assert "Tuned on masks: the model's settings, the evaluation." in page.text
    assert page.with_class("warning") == ["p", "p"]


def test_page_of_a_run_without_metrics_masks_and_evaluation(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    page = ParsedPage(write_page(run, images=IMAGES, count=1))
    assert page.sections == SECTIONS
    assert [alt.partition(":")[0] for alt in page.images[:4]] == [f"val-00000, {stage}" for stage in STAGES[:4]]
    for expected_text in ("Nothing has been logged yet", "There are no ground-truth masks", "No evaluation"):
        assert expected_text in page.text


def test_page_before_the_end_of_the_first_epoch(run: Path) -> None:
    (run / MODEL_FILE).unlink()
    (run / "checkpoint.safetensors").unlink()
    (run / "metrics.jsonl").write_text(
        '{"kind": "train", "step": 10, "epoch": 1, "loss": 0.7, "classification": 0.7}\n'
    )
    page = ParsedPage(write_page(run, images=IMAGES, masks=MASKS))
    assert page.sections == [name for name in SECTIONS if name != "refinement"]
    assert "There is no model yet" in page.text
    assert "0 of 2 epochs (no checkpoint yet)" in page.text
    assert len(page.with_class("chart")) == 1


def test_page_without_images_says_so(run: Path) -> None:
    page = ParsedPage(write_page(run, images=None, missing=["validation images: photos.csv: does not exist"]))
    assert page.sections == [name for name in SECTIONS if name != "refinement"]
    for expected_text in ("photos.csv: does not exist", "this needs images", "so no tags are counted"):
        assert expected_text in page.text
    assert page.with_class("warning-finding") == ["li"]


def test_number_of_checked_training_images(run: Path) -> None:
    model = run / MODEL_FILE  # that is certain of nothing, so that every tag is below this threshold
    write_settings(model, read_settings(model, load(run).engine.network.config).with_threshold(0.9))
    page = ParsedPage(write_page(run, images=IMAGES, train_images=TRAIN_IMAGES, count=1, check_tags=5))
    assert len(page.doubtful_images) == 17
    assert all(re.match(r"(train|val)-\d+, tagged ", alt) for alt in page.doubtful_images)
    assert f"tagged {CLASSES[1]} , score" in page.text
    assert f"tagged {CLASSES[0]} , score" in page.text  # a name that is markup
    assert "<b>disc" not in (run / "report.html").read_text()
    assert "The tags of 5 of 24 training images and all 12 validation images were compared" in page.text


def test_page_of_a_cam_baseline(tmp_path: Path) -> None:
    cam = train(tmp_path / "cam", "model.method=cam", "validation.checkpoint=best", epochs=1)
    page = ParsedPage(write_page(cam, images=IMAGES, masks=MASKS, count=2))
    assert page.sections == [name for name in SECTIONS if name != "refinement"]
    assert "It has no refinement and no pseudo labels" in page.text
    assert "The model is the best checkpoint, epoch 1: the lowest validation loss, which needs image tags" in page.text
    stages = [alt.partition(":")[0].split(", ")[1] for alt in page.images]
    assert stages == ["input", "CAM masks", "ground truth"] * 2
    assert page.with_class("phase") == []


def test_page_of_a_run_without_refinement_shows_only_pseudo_labels(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain", "pseudo_labels.refine=none")
    page = ParsedPage(write_page(plain, images=IMAGES, count=1))
    assert [alt.partition(":")[0].split(", ")[1] for alt in page.images] == ["input", "prediction", "pseudo label"]
    assert "does not refine" in page.text


def test_wrong_arguments_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be 1 or more"):
        write_page(trained, images=IMAGES, count=0)
    with pytest.raises(ConfigError, match="must be 0 or more, got -1"):
        write_page(trained, images=IMAGES, check_tags=-1)
    with pytest.raises(ConfigError, match="is a folder; name a file with out="):
        write_page(trained, tmp_path, images=None)
    with pytest.raises(DataError, match="open them with the run's classes, in its order$"):
        write_page(trained, images=shapes(2, size=SIZE))
