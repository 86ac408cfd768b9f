"""Public functions, one for each thing that a user does; every command of the command line calls one of these."""

import json
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from tagseg._files import make_folder, writing
from tagseg._hub import DEFAULT_MODEL
from tagseg._progress import ProgressBar
from tagseg._ray import check_ray
from tagseg.data import CheckReport, DataSource
from tagseg.data.check import check as check_data
from tagseg.errors import ConfigError, DataError
from tagseg.evaluation import Evaluation, evaluate as evaluate_masks, tune_on_masks as tune_threshold
from tagseg.export.masks import ImageFiles, MaskExport, MaskFormat, write_masks
from tagseg.export.pseudo_labels import Coverage, make_pseudo_labels
from tagseg.predict import Predictor, load, write_predictions
from tagseg.predict.prediction import Format, OutputFiles
from tagseg.predict.render import DEFAULT_ALPHA
from tagseg.predict.settings import WorkingSize
from tagseg.predict.sources import ImageInput
from tagseg.predict.tags import TagsInput
from tagseg.training.distributed import preserve_accelerate_state
from tagseg.training.recipe import Recipe, describe_recipe, recipe_names
from tagseg.training.run_folder import read_config, training_data, validation_data
from tagseg.training_run import run_training


@preserve_accelerate_state()
def train(
    data: str | Path | DataSource,
    out: str | Path,
    *,
    recipe: str | Path | Recipe = "default",
    val: str | Path | DataSource | None = None,
    skip_bad: bool = False,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_steps: int = 500,
    tensorboard: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Predictor:
    """Train a segmentation network from image tags, or resume an interrupted run.

    Args:
        data: Tagged images: a table, a folder, `shapes`, or a `DataSource`. Images without tags are negatives:
            they show none of the classes.
        out: Folder of the run.
        recipe: A recipe, its name, or a TOML file.
        val: Tagged validation images; by default a fraction of the data. Thresholds are tuned on their tags, which also
            choose the checkpoint if `validation.checkpoint` is `best`.
        skip_bad: Leave out images that are missing or cannot be read.
        device: `auto`, `cpu` or `cuda`.
        workers: Number of data workers of each process; by default the number of cores less one.
        checkpoint_steps: Steps between checkpoints.
        tensorboard: Write TensorBoard logs.
        progress: Show the progress on stderr.
        **settings: Settings of the recipe to change, such as `epochs=5` or `model={"gate": "none"}`.

    Returns:
        The trained model, ready to predict.
    """
    resolved = Recipe.load(recipe, settings)
    if resolved.model.method == "supervised":
        raise ConfigError("this recipe trains on masks", "use train_masks (tagseg train-masks), or another recipe")
    return run_training(
        DataSource.of(data),
        Path(out),
        resolved,
        val=None if val is None else DataSource.of(val),
        skip_bad=skip_bad,
        device=device,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
        progress=progress,
    )


@preserve_accelerate_state()
def train_masks(
    data: str | Path | DataSource,
    out: str | Path,
    *,
    recipe: str | Path | Recipe = "student",
    val: str | Path | DataSource | None = None,
    skip_bad: bool = False,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_steps: int = 500,
    tensorboard: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Predictor:
    """Train a segmentation network on masks, pseudo labels or ground truth, or resume an interrupted run.

    Args:
        data: Images with masks: a folder that `write_pseudo_labels` wrote, VOC's folder, a folder with images/ and
            masks/, or any other source with `DataSource(..., masks=...)`. Images without a mask are left out.
        out: Folder of the run.
        recipe: A recipe whose `model.method` is `supervised`, its name, or a TOML file.
        val: Validation images with masks; by default a fraction of the data. The temperature of the probabilities is
            chosen on their masks, which also choose the checkpoint if `validation.checkpoint` is `best`.
        skip_bad: Leave out images that are missing or cannot be read.
        device: `auto`, `cpu` or `cuda`.
        workers: Number of data workers of each process; by default the number of cores less one.
        checkpoint_steps: Steps between checkpoints.
        tensorboard: Write TensorBoard logs.
        progress: Show the progress on stderr.
        **settings: Settings of the recipe to change, as in `train`.

    Returns:
        The trained model, ready to predict.
    """
    resolved = Recipe.load(recipe, settings)
    if resolved.model.method != "supervised":
        raise ConfigError(
            f"this recipe trains on image tags: its model.method is {resolved.model.method}",
            "use the recipe student, or one with model.method=supervised",
        )
    return run_training(
        DataSource.of(data),
        Path(out),
        resolved,
        val=None if val is None else DataSource.of(val),
        skip_bad=skip_bad,
        device=device,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
        progress=progress,
    )


def predict_files(
    images: ImageInput | Sequence[ImageInput],
    out: str | Path,
    *,
    model: str | Path | Predictor = DEFAULT_MODEL,
    tags: TagsInput | None = None,
    every: float | None = None,
    tta: bool = False,
    crf: bool = False,
    threshold: float | None = None,
    size: WorkingSize | None = None,
    overlay: bool | None = None,
    alpha: float = DEFAULT_ALPHA,
    legend: bool = False,
    confidence: bool = False,
    format: Format = "png",
    batch_size: int | None = None,
    skip_bad: bool = False,
    skip_existing: bool = False,
    overwrite: bool = False,
    shard: tuple[int, int] | None = None,
    ray: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Segment images and write masks, overlays, and one predictions.json and legend.png.

    Args:
        images: Files, folders, zips, glob patterns, URLs, videos, `-` for standard input, or images in memory.
        out: Folder to write to. It keeps the predictions of earlier calls with the same model and settings.
        model: A loaded model, a run folder, a model file, or `default`: the model that comes with tagseg.
        tags: Tags of each image, to which its mask is limited, as in `Predictor.predict_many`.
        every: Seconds between the frames that are taken of a video.
        tta: Test-time augmentation: multi-scale and flip.
        crf: Refine masks by a dense CRF.
        threshold: Class threshold in place of the tuned ones.
        size: Longest side in pixels to which images are resized for the network, or `native`; by default the model's.
        overlay: Write overlays, of exactly the images' size; by default if the format is `png`.
        alpha: Opacity of the overlays' colors, from 0 (only the outlines) to 1.
        legend: Add a legend to the right of each overlay, in place of one legend.png.
        confidence: Write NAME_confidence.png: 255 x the probability of each pixel's class.
        format: `png` for files, or `parquet` for Parquet files of up to 1,024 images, with masks in their rows.
        batch_size: Images of one size that run together; by default what suits the device.
        skip_bad: Skip images that cannot be read.
        skip_existing: Keep the predictions of images that an earlier call wrote, and predict the others.
        overwrite: Replace predictions of earlier calls; files that predictions.json does not list are never replaced.
        shard: Part of the images to segment, such as (1, 4); its index is predictions-1-of-4.json.
        ray: Ray cluster to predict on: `auto` for the one that this machine belongs to, `local` for one that lasts as
            long as the call, or the address of its head. docs/guide/machines.md describes what is written.
        workers: Number of workers of the cluster; by default one for each GPU, or each core if it has no GPU.
        progress: Show the progress on stderr.

    Returns:
        Content of predictions.json, which docs/guide/prediction.md describes; of job.json with `parquet` or a cluster.
    """
    overlay = format == "png" if overlay is None else overlay
    files = OutputFiles(overlay=overlay, alpha=alpha, legend=legend, confidence=confidence)
    _check_cluster(ray, workers)
    in_parts = ray is not None or format != "png"
    if in_parts and overwrite:
        raise ConfigError("predictions in parts are not replaced", "choose another folder with {out}")
    with ProgressBar("Listing images", quiet=not progress):
        stream = _predictor(model, threshold, size).predict_many(
            images,
            tags=tags,
            every=every,
            shard=shard,
            batch_size=batch_size,
            tta=tta,
            crf=crf,
            probabilities=False,
            skip_bad=skip_bad,
        )
    if in_parts:
        from tagseg.predict.parts import write_parts

        job = write_parts(
            stream,
            Path(out),
            format=format,
            files=files,
            skip_existing=skip_existing,
            ray=ray,
            workers=workers,
            progress=progress,
        )
        return dict(json.loads(job.read_text(encoding="utf-8")))
    index = write_predictions(
        stream, Path(out), files=files, skip_existing=skip_existing, overwrite=overwrite, progress=progress
    )
    return dict(json.loads(index.read_text(encoding="utf-8")))


def write_pseudo_labels(
    data: str | Path | DataSource,
    out: str | Path,
    *,
    model: str | Path | Predictor = DEFAULT_MODEL,
    tta: bool = False,
    crf: bool = False,
    size: WorkingSize | None = None,
    ignore_below: float = 0.0,
    batch_size: int | None = None,
    ray: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Coverage:
    """Write masks of tagged images for `train_masks`; the classes of a mask are limited to the image's tags.

    An interrupted call can be repeated: masks that exist are kept.

    Args:
        data: Tagged images, with the model's classes.
        out: Folder to write to, in VOC's layout; the images stay where they are.
        model: A loaded model, a run folder, a model file, or `default`: the model that comes with tagseg.
        tta: Test-time augmentation: multi-scale and flip.
        crf: Refine masks by a dense CRF.
        size: Working size, as in `predict_files`.
        ignore_below: Pixels whose class, the background included, is less probable than this become 255: they are
            ignored in training.
        batch_size: Images of one size that run together.
        ray: Ray cluster to predict on, as in `predict_files`.
        workers: Number of workers of the cluster, as in `predict_files`.
        progress: Show a progress bar.

    Returns:
        How much of the images the classes cover, also in coverage.json.
    """
    _check_cluster(ray, workers)
    return make_pseudo_labels(
        _predictor(model, None, size),
        DataSource.of(data),
        Path(out),
        tta=tta,
        crf=crf,
        ignore_below=ignore_below,
        batch_size=batch_size,
        ray=ray,
        workers=workers,
        progress=progress,
    )


def export_masks(
    data: str | Path | DataSource,
    out: str | Path,
    *,
    format: MaskFormat,
    polygons: bool = False,
    image_files: ImageFiles = "copy",
    image_url: str | None = None,
    progress: bool = False,
) -> MaskExport:
    """Write masks for an annotation tool or library; what the tool exports again can be evaluated and trained on.

    Pixels that are ignored stay so: as a crowd in COCO, as 255 in Hugging Face's masks, and as regions of a class
    called "ignored" in the others.

    Args:
        data: A folder that `predict_files` wrote, or images with masks: a folder that `write_pseudo_labels` wrote,
            VOC's folder, a folder with images/ and masks/, or any other source with `DataSource(..., masks=...)`. The
            images of predictions are read where they were predicted, or from `DataSource(..., images=...)`.
        out: Folder to write, or a zip; it must not exist.
        format: `coco`, `yolo`, `cvat`, `label-studio`, or `hf`: Hugging Face's imagefolder.
        polygons: Write COCO's masks as polygons instead of run lengths.
        image_files: `copy` the images, `link` to them, or write `none`, which `yolo` and `hf` do not allow. An image
            that annotation tools do not show, such as HEIC, is written as PNG.
        image_url: Start of the images' URLs for Label Studio; by default that of its local files.
        progress: Show the progress on stderr.

    Returns:
        Number of images, and their classes.
    """
    return write_masks(
        DataSource.of(data),
        Path(out),
        format=format,
        polygons=polygons,
        image_files=image_files,
        image_url=image_url,
        progress=progress,
    )


def evaluate(
    data: str | Path | DataSource,
    *,
    model: str | Path | Predictor = DEFAULT_MODEL,
    tta: bool = False,
    crf: bool = False,
    threshold: float | None = None,
    size: WorkingSize | None = None,
    tune_on_masks: bool = False,
    batch_size: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
) -> Evaluation:
    """Evaluate a model's masks: with the tags that it predicts, and with the true tags.

    Args:
        data: Tagged images with ground-truth masks.
        model: A loaded model, a run folder, a model file, or `default`: the model that comes with tagseg.
        tta: Test-time augmentation: multi-scale and flip.
        crf: Refine masks by a dense CRF.
        threshold: Class threshold in place of the tuned ones; the paper's is 0.1.
        size: Working size, as in `predict_files`.
        tune_on_masks: First tune the threshold on these masks; the result says so.
        batch_size: Images of one size that run together.
        out: Folder to write `evaluation.json` to.
        progress: Show a progress bar.
    """
    if out is not None:
        make_folder(out)
    predictor, source = _predictor(model, threshold, size), DataSource.of(data)
    images, masks = source.open(predictor.classes), source.open_masks(predictor.classes)
    if tune_on_masks:
        predictor.settings = tune_threshold(
            predictor, images, masks, tta=tta, crf=crf, batch_size=batch_size, progress=progress
        ).settings
    result = evaluate_masks(predictor, images, masks, tta=tta, crf=crf, batch_size=batch_size, progress=progress)
    if out is not None:
        with writing(out):
            result.save(out)
    return result


def export_model(
    out: str | Path, *, model: str | Path | Predictor = DEFAULT_MODEL, overwrite: bool = False, progress: bool = False
) -> Path:
    """Write a model to a file that runs without tagseg, on images of any number and size.

    The file is compared with torch on images of five sizes before it gets its name. `load` reads an .onnx file;
    docs/guide/deployment.md has the code that reads both without tagseg.

    Args:
        out: File to write: .onnx for ONNX, or .pt2 for a program of `torch.export`.
        model: A loaded model, a run folder, a model file, a model of the hub, or `default`.
        overwrite: Replace a file of that name.
        progress: Show the progress on stderr.

    Returns:
        The file.
    """
    from tagseg.export.onnx import check_target, write_export  # which imports torch's exporter

    check_target(Path(out), overwrite=overwrite)
    predictor = model if isinstance(model, Predictor) else load(model, device="cpu", optimize=False)
    return write_export(predictor, Path(out), overwrite=overwrite, progress=progress)


def write_report(
    run: str | Path,
    out: str | Path | None = None,
    *,
    count: int = 8,
    check_tags: int = 300,
    progress: bool = False,
) -> Path:
    """Write one HTML page about a run: diagnosis, tags to check, images, curves, metrics per class, configuration.

    Args:
        run: Folder of the run.
        out: HTML file; RUN/report.html by default.
        count: Number of images to show.
        check_tags: Number of training images whose tags are checked, besides all validation images.
        progress: Show a progress bar.
    """
    from tagseg.report import write_page  # imports matplotlib

    read_config(Path(run))  # refuses a wrong folder before anything is written
    if out is not None:
        make_folder(Path(out).parent)
    missing: list[str] = []
    images, masks, train_images = None, None, None
    try:
        images, masks = validation_data(run)
    except DataError as error:
        missing.append(f"validation images: {error.problem}")
    try:
        train_images = training_data(run)
    except DataError as error:
        missing.append(f"training images: {error.problem}")
    return write_page(
        Path(run),
        Path(out) if out else None,
        images=images,
        masks=masks,
        train_images=train_images,
        count=count,
        check_tags=check_tags,
        missing=missing,
        progress=progress,
    )


def check(
    data: str | Path | DataSource,
    *,
    recipe: str | Path | Recipe = "default",
    val: str | Path | DataSource | None = None,
    progress: bool = False,
    **settings: Any,
) -> CheckReport:
    """Validate a dataset before training: decode every image, count every tag, find duplicates.

    Args:
        data: Tagged images, as for `train`.
        recipe: As for `train`: the size of its crop and the share of images that it holds out count.
        val: Validation images, as for `train`; none of them may be among the others.
        progress: Show a progress bar.
        **settings: Settings of the recipe to change, as for `train`.
    """
    resolved = Recipe.load(recipe, settings)
    return check_data(
        DataSource.of(data),
        val=None if val is None else DataSource.of(val),
        crop=resolved.transforms.crop,
        fraction=resolved.validation.fraction,
        seed=resolved.training.seed,
        progress=progress,
    )


def recipes(*, all: bool = False) -> dict[str, str]:
    """Recipes that come with tagseg, each name with its purpose; `Recipe.load(name)` has the settings.

    Args:
        all: Include those of the paper's tables and ablations.
    """
    return {name: describe_recipe(name) for name in recipe_names(all=all)}


def _predictor(model: str | Path | Predictor, threshold: float | None, size: WorkingSize | None) -> Predictor:
    predictor = copy(model) if isinstance(model, Predictor) else load(model)  # the caller's keeps its settings
    if threshold is not None:
        predictor.settings = predictor.settings.with_threshold(threshold)
    predictor.settings = predictor.settings.with_size(size)
    return predictor


def _check_cluster(ray: str | None, workers: int | None) -> None:
    """Refuse a cluster that cannot be reached before anything else is done."""
    if ray is not None:
        check_ray(ray)
    elif workers is not None:
        raise ConfigError("the number of workers is for a cluster", "name one with {ray}, or leave {workers} out")
