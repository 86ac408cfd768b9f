"""Diagnosis of a run: what went wrong, how that is known, and what to do, ranked by severity."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tagseg.data.dataset import ImageDataset
from tagseg.models.transfer import names_model
from tagseg.report.doubtful_tags import DoubtfulTags
from tagseg.report.examination import Examination
from tagseg.report.run_data import RunData

Severity = Literal["problem", "warning", "note"]
_SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
_MAX_NAMED = 6  # classes that one finding names
_MIN_TAGGED = 3  # images with a tag from which on its masks and its threshold are checked
_EMPTY_SHARE = 0.0005  # of an image: a mask of 22 x 22 pixels in a megapixel
_FULL_SHARE = 0.85
_MIN_TRAINING_IMAGES, _MIN_VALIDATION_IMAGES = 20, 5
_RARE_SUPERVISION = 0.1  # share of the images that train the masks
_RISE, _RISE_EPOCHS = 1.2, 3  # a rise of the validation loss that is no noise
_MANY_DOUBTS = 0.3  # share of the images with a contradicted tag
_CHANCE_FACTOR = 1.2  # mean average precision, relative to that of random scores, up to which nothing was learned


@dataclass(frozen=True)
class RunFinding:
    """Something that is wrong, or may be.

    Attributes:
        severity: `problem`: the result cannot be used as it is; `warning`: it could be better; `note`: good to know.
        title: What it is.
        evidence: Which classes or images, and the numbers that show it.
        advice: What to do.
    """

    severity: Severity
    title: str
    evidence: str
    advice: str


def diagnose_run(
    run: RunData,
    images: Mapping[str, ImageDataset | None],
    examinations: Sequence[Examination],
    doubtful_tags: DoubtfulTags | None,
    missing: Sequence[str],
) -> list[RunFinding]:
    """Find what went wrong in a run, the most severe first.

    Args:
        run: The run.
        images: Images of the splits `training` and `validation`, where they could be opened.
        examinations: Results of the model for images of the splits.
        doubtful_tags: Tags that the model contradicts.
        missing: Why images could not be opened, a line each.
    """
    validation = next((examination for examination in examinations if examination.split == "validation"), None)
    findings = chain(
        _check_progress(run),
        _check_mask_training(run),
        _check_learning(run, images.get("validation")),
        _check_masks(examinations),
        _check_thresholds(run, validation) if validation else (),
        _check_images(run, images, examinations, missing),
        _check_tag_counts(images),
        _check_losses(run),
        _check_tags(examinations, doubtful_tags),
    )
    return sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))


def _check_progress(run: RunData) -> Iterator[RunFinding]:
    """Whether the training has ended."""
    validation, epochs = run.metrics_of("validation"), run.recipe.training.epochs
    finished = max((line["epoch"] for line in validation), default=0)
    resume = "run the same training command again: it resumes"
    if run.predictor is None:
        yield RunFinding("problem", "There is no model yet", f"{finished} of {epochs} epochs are done", resume)
    elif not run.metrics:
        yield RunFinding(
            "note", "The training was not examined", "metrics.jsonl is missing or empty", "keep it in the run folder"
        )
    elif finished < epochs:
        yield RunFinding("warning", "The training has not ended", f"{finished} of {epochs} epochs are done", resume)


def _check_mask_training(run: RunData) -> Iterator[RunFinding]:
    """Whether pseudo labels have trained the masks; a CAM has none to train, and a supervised run learns from masks."""
    settings, title = run.recipe.training, "The masks were never trained"
    if not run.makes_pseudo_labels:
        return
    if names_model(run.recipe.model.pretrained):
        title = "This run did not train the masks; they are as good as those of the model that it started from"
    lines = run.metrics_of("train")
    shares = [
        line["labeled_share"]
        for line in lines
        if line["epoch"] > settings.classification_epochs and isinstance(line.get("labeled_share"), int | float)
    ]
    if lines and not shares:
        yield RunFinding(
            "problem",
            title,
            f"the run stopped in epoch {lines[-1]['epoch']}, and masks are trained from epoch "
            f"{settings.classification_epochs + 1} on",
            "run the same training command again: it resumes",
        )
    elif shares and max(shares) == 0:
        yield RunFinding(
            "problem",
            title,
            f"no image had a complete pseudo label from epoch {settings.classification_epochs + 1} on",
            "lower pseudo_labels.foreground_threshold and min_threshold, or raise training.classification_epochs",
        )
    elif shares and np.mean(shares[-10:]) < _RARE_SUPERVISION:
        yield RunFinding(
            "warning",
            "Few images train the masks",
            f"only {100 * np.mean(shares[-10:]):.0f} % had a complete pseudo label at the end",
            "lower pseudo_labels.foreground_threshold and min_threshold, or raise training.classification_epochs",
        )


def _check_learning(run: RunData, images: ImageDataset | None) -> Iterator[RunFinding]:
    """Whether the class scores are better than random ones."""
    precision = next((line.get("mAP") for line in reversed(run.metrics_of("validation"))), None)
    if images is None or not len(images) or not isinstance(precision, int | float):
        return
    shares = images.labels.mean(0)
    chance = 100 * float(shares[(shares > 0) & (shares < 1)].mean())  # random scores' precision is the class's share
    if precision < _CHANCE_FACTOR * chance:
        yield RunFinding(
            "problem",
            "The tags were not learned",
            f"mean average precision is {precision:.0f} % on the validation images; random scores have {chance:.0f} %",
            "train for more epochs, try another training.lr, and check that the tags are those of the images",
        )


def _check_masks(examinations: Sequence[Examination]) -> Iterator[RunFinding]:
    """Whether classes have no mask in images that have their tag, or one that covers everything."""
    if not examinations:
        return
    classes = examinations[0].images.classes
    labels = np.concatenate([examination.labels for examination in examinations])
    shares = np.concatenate([examination.shares for examination in examinations])
    empty, full = [], []
    for k, name in enumerate(classes):
        tagged = shares[labels[:, k], k]
        if len(tagged) < _MIN_TAGGED:
            continue
        if np.median(tagged) < _EMPTY_SHARE:
            empty.append(f"{name} (empty in {(tagged < _EMPTY_SHARE).sum()} of {len(tagged)} images with the tag)")
        elif np.median(tagged) > _FULL_SHARE:
            covered = f"{100 * np.median(tagged):.0f} % of the image in the median of {len(tagged)}"
            full.append(f"{name} ({covered})")
    if empty:
        yield RunFinding(
            "problem",
            "Classes have collapsed: their masks are empty although the tag is given",
            _name(empty),
            "add images of the class without its usual companions, or train for more epochs",
        )
    if full:
        yield RunFinding(
            "problem",
            "Masks cover nearly the whole image",
            _name(full),
            "add images without the class, keep model.penalty=focal, or train for more epochs",
        )


def _check_thresholds(run: RunData, validation: Examination) -> Iterator[RunFinding]:
    """Whether thresholds are at a bound: every image reaches them, or almost none."""
    assert run.predictor is not None
    settings = run.predictor.settings
    if settings.thresholds_from == "argmax" or not len(validation.images):
        return
    low, high, num_images = [], [], len(validation.images)
    for k, threshold in enumerate(settings.thresholds_per_class(len(run.classes))):
        tagged = int(validation.labels[:, k].sum())
        reached = int((validation.scores[:, k] >= threshold).sum())
        evidence = f"{run.classes[k]} (threshold {threshold:.3g}: {reached} of {num_images}, {tagged} tagged)"
        if tagged >= _MIN_TAGGED and reached <= 1:
            high.append(evidence)
        elif reached == num_images > _MIN_VALIDATION_IMAGES and 0 < tagged < 0.9 * num_images:
            low.append(evidence)
    advice = "the scores do not tell images apart: train for more epochs, add images of these classes, check their tags"
    if high:
        yield RunFinding(
            "warning", "Thresholds so high that almost no validation image reaches them", _name(high), advice
        )
    if low:
        yield RunFinding("warning", "Thresholds so low that every validation image reaches them", _name(low), advice)


def _check_images(
    run: RunData,
    images: Mapping[str, ImageDataset | None],
    examinations: Sequence[Examination],
    missing: Sequence[str],
) -> Iterator[RunFinding]:
    """Whether the images are still where they were."""
    advice = "put them back, or run the report in the folder where you trained: paths may be relative to it"
    for line in missing:
        yield RunFinding("warning", "Images cannot be opened", line, advice)
    for split, key in (("training", "train"), ("validation", "validation")):
        data, dataset = run.config["data"].get(key), images.get(split)
        expected = data.get("image_count") if isinstance(data, Mapping) else None
        if dataset is not None and isinstance(expected, int) and len(dataset) < expected:
            evidence = f"{expected - len(dataset):,} of {expected:,} {split} images are missing"
            yield RunFinding("warning", "Images are missing", evidence, advice)
    for examination in examinations:
        if unreadable := examination.unreadable:
            evidence = f"{len(unreadable)} of the {examination.split} images; the first: {unreadable[0]}"
            yield RunFinding("warning", "Images cannot be read", evidence, "replace these files")


def _check_tag_counts(images: Mapping[str, ImageDataset | None]) -> Iterator[RunFinding]:
    """Whether classes have too few images to be learned, or to have their threshold tuned."""
    training, validation = images.get("training"), images.get("validation")
    if training is not None and len(training):
        counts = training.labels.sum(0).numpy()
        if rare := _counted(training, counts, counts < _MIN_TRAINING_IMAGES):
            yield RunFinding("warning", "Classes with few training images", _name(rare), "add images of these classes")
        if constant := _counted(training, counts, counts == len(training)):
            advice = "add images without them: nothing shows what these classes are not"
            yield RunFinding("warning", "Classes that every training image has", _name(constant), advice)
    if validation is not None and len(validation):
        counts = validation.labels.sum(0).numpy()
        if rare := _counted(validation, counts, counts < _MIN_VALIDATION_IMAGES):
            advice = "raise validation.fraction or add images: their thresholds and scores are uncertain"
            yield RunFinding("note", "Classes with few validation images", _name(rare), advice)


def _check_losses(run: RunData) -> Iterator[RunFinding]:
    """Whether the validation loss rises after its minimum.

    The part of the pseudo labels is left out, because these change in training.
    """
    key = "loss" if run.is_supervised else "classification"
    losses = {
        line["epoch"]: float(line[key])
        for line in run.metrics_of("validation")
        if line["epoch"] > run.classification_epochs and isinstance(line.get(key), int | float)
    }
    if not losses:
        return
    best, last = min(losses, key=losses.__getitem__), max(losses)
    if last - best < _RISE_EPOCHS or losses[last] < _RISE * losses[best]:
        return
    evidence = f"{losses[best]:.3g} in epoch {best}, {losses[last]:.3g} in epoch {last}"
    if run.recipe.validation.checkpoint == "best":
        advice = f"train for fewer epochs; the model is the best checkpoint already, epoch {run.checkpoint_epoch}"
        yield RunFinding("note", "The validation loss rises: the network overfits", evidence, advice)
    else:
        advice = "train for fewer epochs, or keep the best checkpoint with validation.checkpoint=best"
        yield RunFinding("warning", "The validation loss rises: the network overfits", evidence, advice)


def _check_tags(examinations: Sequence[Examination], doubtful_tags: DoubtfulTags | None) -> Iterator[RunFinding]:
    """Whether the model contradicts tags."""
    if doubtful_tags is None or not doubtful_tags.num_tags:
        return
    num_images, num_examined = doubtful_tags.num_images, sum(len(examination.images) for examination in examinations)
    evidence = (
        f"the model contradicts {doubtful_tags.num_tags:,} tag{'s' if doubtful_tags.num_tags > 1 else ''} in "
        f"{num_images:,} of {num_examined:,} images"
    )
    if num_images > _MANY_DOUBTS * num_examined:
        advice = "these are more likely errors of the model: train for more epochs before correcting tags"
        yield RunFinding("warning", "The model and the tags disagree in many images", evidence, advice)
    else:
        yield RunFinding("note", "Some tags may be wrong", evidence, "look at the images under Tags to check")


def _counted(data: ImageDataset, counts: NDArray[Any], is_listed: NDArray[np.bool_]) -> list[str]:
    """Names of the listed classes with their number of images, in ascending order of this."""
    order = np.argsort(counts, kind="stable")
    return [f"{data.classes[k]} ({int(counts[k])} of {len(data)})" for k in order if is_listed[k]]


def _name(texts: Sequence[str]) -> str:
    """Enumerate classes, the first of them by name."""
    more = len(texts) - _MAX_NAMED
    return ", ".join(texts[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
