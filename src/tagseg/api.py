"""What a person does with tagseg, one function each; every command of the command line is one of these."""

import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import torch

from tagseg._device import usable_cores
from tagseg.data import CheckReport, DataError, DataSource, ImageDataset, MaskDataset, check as check_data
from tagseg.data.split import hold_out
from tagseg.evaluation import Evaluation, evaluate as measure_masks, tune_on_masks
from tagseg.models import Network
from tagseg.models.files import MODEL_FILE
from tagseg.predict import InferenceSettings, Predictor, load, tune_on_tags, write_predictions, write_settings
from tagseg.predict.settings import NOTE, default_settings
from tagseg.training.board import Board
from tagseg.training.loop import fit
from tagseg.training.processes import processes
from tagseg.training.recipe import Recipe, describe_recipe, recipe_names
from tagseg.training.run_folder import check_space, prepare_folder, read_config, read_held_out, write_held_out
from tagseg.training.start import build, check_evidence, readable

MOST_MEASURED = 100  # images whose masks are measured after each epoch: enough for a curve


def train(
    data: str | Path | DataSource,
    out: str | Path,
    *,
    recipe: str | Path = "default",
    changes: Sequence[str] = (),
    val: str | Path | DataSource | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    checkpoint_steps: int = 500,
    tensorboard: bool = False,
) -> Predictor:
    """Train a segmentation network from tagged images; the same call goes on where an earlier one stopped.

    Args:
        data: the tagged images: a table, a folder, `shapes`; see `open_dataset`.
        out: the run's folder.
        recipe: a recipe's name, or a TOML file.
        changes: settings to change, such as `model.gate=none`.
        val: tagged images to hold out: their tags choose the thresholds, and the epoch if `validation.checkpoint` is
            `best`; by default a share of the data.
        skip_bad: go on without images that are missing or cannot be read.
        workers: processes that read images, for each that trains; by default as many as there are cores, but one.
        checkpoint_steps: steps between checkpoints.
        tensorboard: write curves and images for TensorBoard too.

    Returns:
        The trained model, ready to predict.
    """
    settings, out, source = Recipe.load(recipe, changes), Path(out), DataSource.of(data)
    shared = processes()
    if workers is None:
        workers = max(0, usable_cores() // shared.num_processes - 1)
    learn, bad = readable(source.open(skip_missing=skip_bad), skip_bad=skip_bad)
    for warning in check_evidence(learn):
        if shared.is_main_process:
            print(f"warning: {warning}", file=sys.stderr)
    if val is None:
        val_source = source
        learn, held_out = hold_out(learn, settings.validation.fraction, seed=settings.training.seed)
    else:
        val_source = DataSource.of(val)
        held_out, more = readable(val_source.open(learn.classes, skip_missing=skip_bad), skip_bad=skip_bad)
        bad += more
    if not len(held_out):
        raise DataError(f"{val_source.path}: no images can be held out of training; name some with --val")
    if shared.is_main_process:
        unseen = [name for name, count in zip(held_out.classes, held_out.labels.sum(0), strict=True) if not count]
        lack = f"; none of these has {', '.join(unseen)}" if unseen else ""
        chosen = "the thresholds" if settings.validation.checkpoint == "last" else "the epoch and the thresholds"
        print(f"{len(learn)} images teach, the tags of {len(held_out)} choose {chosen}{lack}", file=sys.stderr)
    described = {
        "train": {**source.describe(), "image_count": len(learn)},
        "validation": {**val_source.describe(), "image_count": len(held_out)},
        "skipped": bad,
    }
    torch.manual_seed(settings.training.seed)
    network = build(settings.model, learn.classes)
    with shared.main_process_first():
        prepare_folder(out, settings, learn.classes, described)
    check_space(out, network)
    if shared.is_main_process:
        write_held_out(out, held_out.image_ids)
    ground_truth = val_source.masks_if_any(learn.classes)
    fit(
        network,
        settings,
        learn,
        held_out,
        out,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        measure=_measure(held_out, ground_truth, settings) if ground_truth is not None else None,
        on_epoch=Board(out, held_out, settings) if tensorboard and shared.is_main_process else None,
        notes={NOTE: _use(network, settings).to_json()},
    )
    with shared.main_process_first():
        if shared.is_main_process:
            model = load(out, device=str(shared.device))
            model.settings = _use(network, settings)
            write_settings(out / MODEL_FILE, tune_on_tags(model, held_out))
    return load(out, device=str(shared.device))


def predict_files(
    model: str | Path | Predictor,
    images: Sequence[str | Path],
    out: str | Path,
    *,
    tta: bool = False,
    crf: bool = False,
    threshold: float | None = None,
    batch_size: int | None = None,
    skip_bad: bool = False,
) -> list[str]:
    """Segment images and write masks, overlays and one JSON file.

    Args:
        model: a run's folder, a model's file, `default` for the one that comes with tagseg, or a loaded model.
        images: files, folders, zips or patterns.
        out: the folder to write to.
        quality: the paper's scales and flips instead of single scale.
        crf: refine by the dense CRF.
        threshold: the least score with which a class is kept; by default what suits the validation tags best.
        batch_size: images of one size that go through the network together; by default what suits the device.
        skip_bad: leave out images that cannot be read.

    Returns:
        What was wrong with each image that was left out.
    """
    predictor = _load(model, threshold)
    stream = predictor.predict_many(
        list(images), batch_size=batch_size, tta=tta, crf=crf, probabilities=False, skip_bad=skip_bad
    )
    write_predictions(stream, Path(out), progress=True)
    return [str(error) for error in stream.skipped]


def evaluate(
    model: str | Path | Predictor,
    data: str | Path | DataSource,
    *,
    tta: bool = False,
    crf: bool = False,
    threshold: float | None = None,
    tune_masks: bool = False,
    out: str | Path | None = None,
) -> Evaluation:
    """Measure a model's masks against true ones: with the tags that it predicts, and with the true tags.

    Args:
        model: a run's folder, a model's file, `default` for the one that comes with tagseg, or a loaded model.
        data: tagged images with masks.
        quality: the paper's scales and flips instead of single scale.
        crf: refine by the dense CRF.
        threshold: the least score with which a class is kept; the paper's is .1.
        tune_masks: first choose the threshold that is best for these masks; the result says so.
        out: a folder to write `evaluation.json` to.
    """
    predictor = _load(model, threshold)
    source = DataSource.of(data)
    images, ground_truth = source.open(predictor.classes), source.open_masks(predictor.classes)
    if tune_masks:
        predictor.settings = tune_on_masks(predictor, images, ground_truth, tta=tta, crf=crf).settings
    result = measure_masks(predictor, images, ground_truth, tta=tta, crf=crf)
    if out is not None:
        result.save(out)
    return result


def write_report(run: str | Path, out: str | Path | None = None, *, count: int = 8) -> Path:
    """Write one HTML page about a run: images, curves, numbers per class, configuration.

    Args:
        run: the run's folder.
        out: the page; RUN/report.html by default.
        count: images to show.
    """
    from tagseg.report import write_page  # imports matplotlib, which nothing else needs

    images, masks = validation_of(run)
    return write_page(Path(run), Path(out) if out else None, images=images, masks=masks, count=count)


def check(data: str | Path | DataSource, *, against: Sequence[str | Path] = (), progress: bool = False) -> CheckReport:
    """Look at every image and tag before hours are spent on them.

    Args:
        data: the tagged images.
        against: other datasets that must not share an image with these.
    """
    return check_data(DataSource.of(data), against=against, progress=progress)


def recipes(*, all: bool = False) -> dict[str, str]:
    """Return the built-in recipes, each name with its purpose; `Recipe.load(name)` has the settings.

    Args:
        all: Whether to include those of the paper's tables and ablations.
    """
    return {name: describe_recipe(name) for name in recipe_names(all=all)}


def validation_of(run: str | Path) -> tuple[ImageDataset, MaskDataset | None]:
    """The images that a run held out, and their masks where there are any."""
    config = read_config(Path(run))
    source = DataSource.from_description(config["data"]["validation"])
    data = source.open(config["classes"], skip_missing=True)
    position = {name: index for index, name in enumerate(data.image_ids)}
    held_out = [position[name] for name in read_held_out(Path(run)) if name in position]
    return data.subset(held_out), source.masks_if_any(config["classes"])


def _load(model: str | Path | Predictor, threshold: float | None) -> Predictor:
    predictor = copy(model) if isinstance(model, Predictor) else load(model)  # the caller's keeps its settings
    if threshold is not None:
        predictor.settings = predictor.settings.with_threshold(threshold)
    return predictor


def _use(network: Network, recipe: Recipe) -> InferenceSettings:
    """The settings of inference as the recipe has them; what it leaves open is the paper's."""
    changes = {key: value for key, value in recipe.inference.model_dump().items() if value is not None}
    return replace(default_settings(network.config), **changes)


def _measure(data: ImageDataset, ground_truth: MaskDataset, recipe: Recipe) -> Callable[[Network], dict[str, float]]:
    """Measure masks after each epoch, for the journal alone."""
    few = data.subset(range(min(len(data), MOST_MEASURED)))

    def measure(network: Network) -> dict[str, float]:
        device = str(next(network.parameters()).device)
        predictor = Predictor(network, _use(network, recipe), device=device)
        result = measure_masks(predictor, few, ground_truth, progress=False)
        return {f"mIoU {protocol}": 100 * result.mean_iou(protocol) for protocol in result.confusion}

    return measure
