"""Findings about runs that went wrong, and none about those that did not."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tagseg.data import ImageDataset
from tagseg.report.diagnosis import RunFinding, diagnose_run
from tagseg.report.doubtful_tags import find_doubtful_tags
from tagseg.report.examination import Examination
from tagseg.report.run_data import RunData, read_run
from tagseg.training.recipe import Recipe
from tests.report.small_runs import CLASSES, make_images

TRAINING, VALIDATION = make_images(150, "train"), make_images(60, "val")
GOOD_MASKS = 0.2


def examination_of(images: ImageDataset, split: str = "validation") -> Examination:
    """Examination of a good model: certain scores and masks of usual size."""
    labels = images.labels.numpy()
    scores = np.where(labels > 0.5, 0.95, 0.05)
    return Examination(split, images, len(images), scores, GOOD_MASKS * labels, ())


def metrics(epochs: int, *, labeled_share: float = 0.8, mean_precision: float = 90.0, **losses: float) -> list[Any]:
    """Metrics of a good run; losses by epoch replace the classification loss, such as `epoch_2=0.5`."""
    lines: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        step = {"step": 10 * epoch, "epoch": epoch}
        lines.append({"kind": "train", **step, "loss": 1.0, "labeled_share": labeled_share if epoch > 5 else 0.0})
        loss = losses.get(f"epoch_{epoch}", 1 / epoch)
        lines.append({"kind": "validation", **step, "loss": loss, "classification": loss, "mAP": mean_precision})
    return lines


@pytest.fixture(scope="module")
def trained_run(trained: Path) -> RunData:
    return read_run(trained)


@pytest.fixture
def good_run(trained_run: RunData) -> RunData:
    """A run of 20 epochs, of which the first 5 train the classification, without any problem."""
    run = replace(trained_run, predictor=copy(trained_run.predictor))
    assert run.predictor is not None
    run.predictor.settings = replace(run.predictor.settings, thresholds=0.5)
    config = {**run.config, "data": {"train": {"image_count": 150}, "validation": {"image_count": 60}}}
    recipe = run.recipe.with_settings({"epochs": 20, "classification_epochs": 5})
    return replace(run, config=config, recipe=recipe, metrics=metrics(20))


def with_settings(run: RunData, **settings: Any) -> RunData:
    return replace(run, recipe=Recipe.load(run.recipe, settings))


def findings_of(
    run: RunData,
    *examinations: Examination,
    images: Mapping[str, ImageDataset | None] | None = None,
    missing: tuple[str, ...] = (),
) -> list[RunFinding]:
    examinations = examinations or (examination_of(VALIDATION),)
    doubtful = find_doubtful_tags(examinations, [0.5] * len(CLASSES))
    splits = {"training": TRAINING, "validation": VALIDATION} if images is None else images
    return diagnose_run(run, splits, examinations, doubtful, missing)


def test_nothing_is_found_in_a_good_run(good_run: RunData) -> None:
    assert findings_of(good_run) == []


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"metrics": metrics(20, labeled_share=0.0)}, "no image had a complete pseudo label from epoch 6 on"),
        ({"metrics": metrics(3)}, "the run stopped in epoch 3, and masks are trained from epoch 6 on"),
    ],
)
def test_masks_that_were_never_trained(good_run: RunData, changes: dict[str, Any], evidence: str) -> None:
    first = findings_of(replace(good_run, **changes))[0]
    assert (first.severity, first.title) == ("problem", "The masks were never trained")
    assert evidence in first.evidence


def test_masks_of_a_model_to_start_from(good_run: RunData, trained: Path) -> None:
    stopped = replace(with_settings(good_run, model={"pretrained": str(trained)}), metrics=metrics(3))
    assert "the model that it started from" in findings_of(stopped)[0].title


@pytest.mark.parametrize("method", ["cam", "supervised"])
def test_methods_without_pseudo_labels_need_none(good_run: RunData, method: str) -> None:
    other = with_settings(good_run, model={"method": method})
    assert findings_of(replace(other, metrics=metrics(20, labeled_share=0.0))) == []


def test_few_images_that_train_the_masks(good_run: RunData) -> None:
    (finding,) = findings_of(replace(good_run, metrics=metrics(20, labeled_share=0.04)))
    assert finding.severity == "warning"
    assert "only 4 %" in finding.evidence


def test_runs_that_have_not_ended(good_run: RunData) -> None:
    (finding,) = findings_of(replace(good_run, metrics=metrics(12)))
    assert (finding.title, finding.evidence) == ("The training has not ended", "12 of 20 epochs are done")
    first, second = diagnose_run(replace(good_run, metrics=metrics(2), predictor=None), {}, [], None, ())
    assert (first.title, second.title) == ("There is no model yet", "The masks were never trained")
    assert [finding.severity for finding in findings_of(replace(good_run, metrics=[]))] == ["note"]


def test_classes_that_collapsed_or_cover_everything(good_run: RunData) -> None:
    examination = examination_of(VALIDATION)
    examination.shares[:, 1] = 0
    examination.shares[:, 4] = np.where(examination.labels[:, 4], 0.98, 0)
    collapsed, full = findings_of(good_run, examination)
    tagged = examination.labels.sum(0)
    assert collapsed.evidence == f"{CLASSES[1]} (empty in {tagged[1]} of {tagged[1]} images with the tag)"
    assert full.evidence == f"{CLASSES[4]} (98 % of the image in the median of {tagged[4]})"
    assert collapsed.severity == full.severity == "problem"


def test_thresholds_at_their_bounds(good_run: RunData) -> None:
    assert good_run.predictor is not None
    settings = good_run.predictor.settings
    good_run.predictor.settings = replace(settings, thresholds=(0.96, 0.04, 0.5, 0.5, 0.5, 0.5), thresholds_from="tags")
    high, low = (finding for finding in findings_of(good_run) if "Thresholds" in finding.title)
    tagged = VALIDATION.labels.sum(0).int().tolist()
    assert high.evidence == f"{CLASSES[0]} (threshold 0.96: 0 of 60, {tagged[0]} tagged)"
    assert low.evidence == f"{CLASSES[1]} (threshold 0.04: 60 of 60, {tagged[1]} tagged)"


def test_scores_no_better_than_random_ones(good_run: RunData) -> None:
    (finding,) = findings_of(replace(good_run, metrics=metrics(20, mean_precision=34.0)))
    assert finding.title == "The tags were not learned"


def test_validation_loss_that_rises(good_run: RunData) -> None:
    risen = replace(good_run, metrics=metrics(20, **{f"epoch_{epoch}": 0.02 * epoch for epoch in range(10, 21)}))
    (finding,) = findings_of(risen)
    assert (finding.severity, finding.evidence) == ("warning", "0.111 in epoch 9, 0.4 in epoch 20")
    (finding,) = findings_of(with_settings(risen, checkpoint="best"))
    assert finding.severity == "note"
    assert findings_of(replace(good_run, metrics=metrics(20, epoch_20=0.2))) == []  # one epoch is noise


def test_classes_with_few_images(good_run: RunData) -> None:
    images = {"training": TRAINING.subset(range(30)), "validation": VALIDATION.subset(range(6))}
    config = {**good_run.config, "data": {}}
    few, rare = findings_of(replace(good_run, config=config), examination_of(images["validation"]), images=images)
    assert few.title == "Classes with few training images"
    assert rare.title == "Classes with few validation images"
    counts = images["training"].labels.sum(0).int()
    assert few.evidence.startswith(f"{CLASSES[int(counts.argmin())]} ({int(counts.min())} of 30), ")
    labels = torch.cat([torch.ones(150, 1), TRAINING.labels[:, 1:]], dim=1)
    constant = ImageDataset(CLASSES, TRAINING.image_ids, labels, TRAINING.images)
    (finding,) = findings_of(good_run, images={"training": constant, "validation": VALIDATION})
    assert finding.evidence == f"{CLASSES[0]} (150 of 150)"


def test_images_that_are_gone(good_run: RunData) -> None:
    images = {"training": TRAINING.subset(range(140)), "validation": None}
    reason = "validation images: photos.csv: does not exist"
    missing, fewer = findings_of(good_run, examination_of(TRAINING, "training"), images=images, missing=(reason,))
    assert missing.evidence == reason
    assert fewer.evidence == "10 of 150 training images are missing"
    broken = replace(examination_of(VALIDATION), unreadable=("a.jpg: is damaged", "b.jpg: is damaged"))
    (finding,) = findings_of(good_run, broken)
    assert finding.evidence == "2 of the validation images; the first: a.jpg: is damaged"


def test_wrong_tags_are_announced(good_run: RunData) -> None:
    examination = examination_of(VALIDATION)
    examination.scores[:2] = 1 - examination.scores[:2]
    (finding,) = findings_of(good_run, examination)
    assert (finding.severity, finding.title) == ("note", "Some tags may be wrong")
    assert "12 tags in 2 of 60 images" in finding.evidence
    examination.scores[:30] = 0.5 + 0.4 * (0.5 - examination.labels[:30])
    (finding,) = findings_of(good_run, examination)
    assert finding.severity == "warning"


def test_the_most_severe_come_first(good_run: RunData) -> None:
    bad = replace(good_run, metrics=metrics(12, labeled_share=0.0, mean_precision=30))
    images = {"training": TRAINING, "validation": VALIDATION.subset(range(6))}
    severities = [finding.severity for finding in findings_of(bad, images=images)]
    assert severities == ["problem", "problem", "warning", "warning", "note"]
