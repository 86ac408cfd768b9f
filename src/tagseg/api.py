"""What a person does with tagseg, one function each; every command of the command line is one of these."""

import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import torch

from tagseg._cores import usable_cores
from tagseg.data import CheckReport, DataError, ImageTags, PixelTruth, check as check_data
from tagseg.data.splitting import hold_out
from tagseg.evaluation import Evaluation, evaluate as measure_masks, tune_on_masks
from tagseg.inference import InferenceSettings, Predictor, load, tune_on_tags, write_predictions, write_settings
from tagseg.inference.settings import NOTE, default_settings
from tagseg.models import Network
from tagseg.models.files import MODEL_FILE
from tagseg.reporting import write_report
from tagseg.source import Source
from tagseg.training.board import Board
from tagseg.training.loop import fit
from tagseg.training.processes import processes
from tagseg.training.recipe import Recipe, describe_recipe, recipe_names
from tagseg.training.run_folder import check_space, prepare_folder, read_config, read_held_out, write_held_out
from tagseg.training.start import build, check_evidence, readable

MOST_MEASURED = 100  # pictures whose masks are measured after each epoch: enough for a curve


def train(
    data: str | Path | Source,
    out: str | Path,
    *,
    recipe: str | Path = "default",
    changes: Sequence[str] = (),
    val: str | Path | Source | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    checkpoint_steps: int = 500,
    tensorboard: bool = False,
) -> Predictor:
    """Train a segmentation network from tagged pictures; the same call goes on where an earlier one stopped.

    Args:
        data: the tagged pictures: a table, a folder, `shapes`; see `open_dataset`.
        out: the run's folder.
        recipe: a recipe's name, or a TOML file.
        changes: settings to change, such as `model.gate=none`.
        val: tagged pictures to hold out: their tags choose the cut-offs, and the epoch if `validation.keep` is
            `lowest-loss`; by default a share of the data.
        skip_bad: go on without pictures that are missing or cannot be read.
        workers: processes that read pictures, for each that trains; by default as many as there are cores, but one.
        checkpoint_steps: steps between checkpoints.
        tensorboard: write curves and pictures for TensorBoard too.

    Returns:
        The trained model, ready to predict.
    """
    settings, out, source = Recipe.load(recipe, changes), Path(out), Source.of(data)
    shared = processes()
    if workers is None:
        workers = max(0, usable_cores() // shared.num_processes - 1)
    learn, bad = readable(source.open(skip_missing=skip_bad), skip_bad=skip_bad)
    for warning in check_evidence(learn):
        if shared.is_main_process:
            print(f"warning: {warning}", file=sys.stderr)
    if val is None:
        val_source = source
        learn, held_out = hold_out(learn, settings.validation.share, seed=settings.optimiser.seed)
    else:
        val_source = Source.of(val)
        held_out, more = readable(val_source.open(learn.classes, skip_missing=skip_bad), skip_bad=skip_bad)
        bad += more
    if not len(held_out):
        raise DataError(f"{val_source.data}: no pictures can be held out of training; name some with --val")
    if shared.is_main_process:
        unseen = [name for name, count in zip(held_out.classes, held_out.tags.sum(0), strict=True) if not count]
        lack = f"; none of these has {', '.join(unseen)}" if unseen else ""
        chosen = "the cut-offs" if settings.validation.keep == "last" else "the epoch and the cut-offs"
        print(f"{len(learn)} pictures teach, the tags of {len(held_out)} choose {chosen}{lack}", file=sys.stderr)
    described = {
        "train": {**source.describe(), "pictures": len(learn)},
        "validation": {**val_source.describe(), "pictures": len(held_out)},
        "skipped": bad,
    }
    torch.manual_seed(settings.optimiser.seed)
    network = build(settings.model, learn.classes)
    with shared.main_process_first():
        prepare_folder(out, settings, learn.classes, described)
    check_space(out, network)
    if shared.is_main_process:
        write_held_out(out, held_out.names)
    truth = val_source.truth_if_any(learn.classes)
    fit(
        network,
        settings,
        learn,
        held_out,
        out,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        measure=_measure(held_out, truth, settings) if truth is not None else None,
        on_epoch=Board(out, held_out, settings) if tensorboard and shared.is_main_process else None,
        notes={NOTE: _use(network, settings).to_json()},
    )
    with shared.main_process_first():
        if shared.is_main_process:
            model = load(out, device=str(shared.device))
            model.settings = _use(network, settings)
            write_settings(out / MODEL_FILE, tune_on_tags(model, held_out))
    return load(out, device=str(shared.device))


def predict(
    model: str | Path | Predictor,
    pictures: Sequence[str | Path],
    out: str | Path,
    *,
    quality: bool = False,
    crf: bool = False,
    cutoff: float | None = None,
    batch_size: int | None = None,
    skip_bad: bool = False,
) -> list[str]:
    """Segment pictures and write masks, overlays and one JSON file.

    Args:
        model: a run's folder, a model's file, `default` for the one that comes with tagseg, or a loaded model.
        pictures: files, folders, zips or patterns.
        out: the folder to write to.
        quality: the paper's scales and flips instead of one look.
        crf: refine by the dense CRF.
        cutoff: the least score with which a class is kept; by default what suits the validation tags best.
        batch_size: pictures of one size that go through the network together; by default what suits the device.
        skip_bad: leave out pictures that cannot be read.

    Returns:
        What was wrong with each picture that was left out.
    """
    predictor = _load(model, cutoff)
    stream = predictor.predict_many(
        list(pictures), batch_size=batch_size, quality=quality, crf=crf, probabilities=False, skip_bad=skip_bad
    )
    write_predictions(stream, Path(out), progress=True)
    return [str(error) for error in stream.bad]


def evaluate(
    model: str | Path | Predictor,
    data: str | Path | Source,
    *,
    quality: bool = False,
    crf: bool = False,
    cutoff: float | None = None,
    tune_masks: bool = False,
    out: str | Path | None = None,
) -> Evaluation:
    """Measure a model's masks against true ones: with the tags that it predicts, and with the true tags.

    Args:
        model: a run's folder, a model's file, `default` for the one that comes with tagseg, or a loaded model.
        data: tagged pictures with masks.
        quality: the paper's scales and flips instead of one look.
        crf: refine by the dense CRF.
        cutoff: the least score with which a class is kept; the paper's is .1.
        tune_masks: first choose the cut-off that is best for these masks; the result says so.
        out: a folder to write `evaluation.json` to.
    """
    predictor = _load(model, cutoff)
    source = Source.of(data)
    pictures, truth = source.open(predictor.classes), source.truth(predictor.classes)
    if tune_masks:
        predictor.settings = tune_on_masks(predictor, pictures, truth, quality=quality, crf=crf).settings
    result = measure_masks(predictor, pictures, truth, quality=quality, crf=crf)
    if out is not None:
        result.save(out)
    return result


def report(run: str | Path, out: str | Path | None = None, *, count: int = 8) -> Path:
    """Write one HTML page about a run: pictures, curves, numbers per class, configuration.

    Args:
        run: the run's folder.
        out: the page; RUN/report.html by default.
        count: pictures to show.
    """
    pictures, truth = validation_of(run)
    return write_report(Path(run), Path(out) if out else None, pictures=pictures, truth=truth, count=count)


def check(data: str | Path | Source, *, against: Sequence[str | Path] = ()) -> CheckReport:
    """Look at every picture and tag before hours are spent on them.

    Args:
        data: the tagged pictures.
        against: other datasets that must not share a picture with these.
    """
    source = Source.of(data)
    return check_data(
        source.data,
        images=source.images or None,
        split=source.split,
        separator=source.separator,
        sbd=source.sbd,
        against=against,
    )


def recipes() -> dict[str, str]:
    """The recipes that come with tagseg, each with what it is for; `Recipe.load(name)` shows one's settings."""
    return {name: describe_recipe(name) for name in recipe_names()}


def validation_of(run: str | Path) -> tuple[ImageTags, PixelTruth | None]:
    """The pictures that a run held out, and their masks where there are any."""
    config = read_config(Path(run))
    source = Source.described(config["data"]["validation"])
    data = source.open(config["classes"], skip_missing=True)
    position = {name: index for index, name in enumerate(data.names)}
    held_out = [position[name] for name in read_held_out(Path(run)) if name in position]
    return data.subset(held_out), source.truth_if_any(config["classes"])


def _load(model: str | Path | Predictor, cutoff: float | None) -> Predictor:
    predictor = copy(model) if isinstance(model, Predictor) else load(model)  # the caller's keeps its settings
    if cutoff is not None:
        predictor.settings = predictor.settings.with_cutoff(cutoff)
    return predictor


def _use(network: Network, recipe: Recipe) -> InferenceSettings:
    """The settings of inference as the recipe has them; what it leaves open is the paper's."""
    changes = {key: value for key, value in recipe.use.model_dump().items() if value is not None}
    return replace(default_settings(network.config), **changes)


def _measure(data: ImageTags, truth: PixelTruth, recipe: Recipe) -> Callable[[Network], dict[str, float]]:
    """Measure masks after each epoch, for the journal alone."""
    few = data.subset(range(min(len(data), MOST_MEASURED)))

    def measure(network: Network) -> dict[str, float]:
        device = str(next(network.parameters()).device)
        predictor = Predictor(network, _use(network, recipe), device=device)
        result = measure_masks(predictor, few, truth, progress=False)
        return {f"mIoU {protocol}": 100 * result.mean_iou(protocol) for protocol in result.confusion}

    return measure
