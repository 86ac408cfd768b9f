"""A training run, from the data to the tuned model; `train` and `train_masks` call it."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tagseg._device import usable_cores
from tagseg._files import writing
from tagseg._hub import MODEL_FILE
from tagseg._progress import ProgressBar, track
from tagseg.data import DataSource, ImageDataset, MaskDataset
from tagseg.data.check import decode_all
from tagseg.data.dataset import hold_out
from tagseg.data.findings import CLASS_LEVELS, DATASET_LEVELS
from tagseg.data.images import ImageInfo
from tagseg.data.masks import positions_with_masks, values_in
from tagseg.errors import DataError
from tagseg.evaluation import evaluate as evaluate_masks
from tagseg.models import ModelConfig, Network, build_network
from tagseg.models.transfer import inherit_design
from tagseg.predict import InferenceSettings, Predictor, load, tune_on_tags, write_settings
from tagseg.predict.settings import NOTE, default_settings, size_for_crop
from tagseg.training.distributed import (
    explain_lost_processes,
    interruptible,
    is_main_process,
    processes,
    requested_device,
)
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import (
    ImageList,
    check_disk_space,
    hold_run,
    list_images,
    prepare_folder,
    write_held_out,
)

MAX_EVALUATED = 100  # validation images whose masks are evaluated after each epoch: enough for a curve

logger = logging.getLogger(__name__)


@interruptible("stopped before the first step")
def run_training(
    source: DataSource,
    out: Path,
    recipe: Recipe,
    *,
    val: DataSource | None,
    skip_bad: bool,
    device: str,
    workers: int | None,
    checkpoint_steps: int,
    tensorboard: bool,
    progress: bool,
) -> Predictor:
    """Train on image tags or on masks, as the recipe's method says; the arguments are those of `train`."""
    learns_masks = recipe.model.method == "supervised"
    recipe = recipe.model_copy(update={"model": inherit_design(recipe.model)})
    _inference_settings(recipe, recipe.model)  # refuses wrong values before any image is read
    with (
        requested_device(device),
        torch.random.fork_rng(devices=range(torch.cuda.device_count())),
        explain_lost_processes(),
        hold_run(out) if is_main_process() else nullcontext(),
    ):
        state = processes()
        if workers is None:
            workers = max(0, usable_cores() // state.num_processes - 1)
        progress = progress and state.is_main_process
        with ProgressBar("Listing images", quiet=not progress):
            images = source.open(skip_missing=skip_bad)
        if not images.classes:
            raise DataError(f"{source.path}: no image has a tag, so there is nothing to learn", "add tags")
        masks = source.open_masks(images.classes) if learns_masks else None
        torch.manual_seed(recipe.training.seed)
        # Before all images are read, which takes minutes: weights may be missing, or not fit.
        with ProgressBar("Loading the network", quiet=not progress):
            network = build_network(recipe.model, images.classes)
        # These import torchvision, for which neither a prediction nor the search for weights should wait.
        from tagseg.training.logging import TensorBoardWriter
        from tagseg.training.loop import train_network

        data = _check_data(source, images, masks, val, recipe, skip_bad=skip_bad, progress=progress)
        if state.is_main_process:
            logger.info(_data_summary(data, recipe))
        inference = _inference_settings(recipe, network.config)
        with state.main_process_first(), writing(out):
            prepare_folder(out, recipe, data.train.classes, data.description, data.lists)
        check_disk_space(out, network)
        if state.is_main_process:
            with writing(out):
                write_held_out(out, data.val.image_ids)
        measured_masks = _measured_masks(data)
        measure = None
        if measured_masks is not None:
            measure = _MaskMetrics(data.val, measured_masks, inference, progress=progress)
        with ExitStack() as stack:
            board = None
            if tensorboard and state.is_main_process:
                board = stack.enter_context(closing(TensorBoardWriter(out, data.val, recipe)))
            train_network(
                network,
                recipe,
                data.train,
                data.val,
                out,
                masks=data.masks,
                workers=workers,
                checkpoint_steps=checkpoint_steps,
                measure=measure,
                on_epoch=board,
                notes={NOTE: inference.to_json()},
                progress=progress,
            )
        with interruptible("stopped after the last step, before the model was tuned"), state.main_process_first():
            if state.is_main_process:
                model = load(out, device=str(state.device))
                model.settings = inference
                write_settings(out / MODEL_FILE, _tune(model, data, recipe, progress=progress))
        return load(out, device=str(state.device))


@dataclass(frozen=True)
class _RunData:
    """Images of a run that can be read.

    Attributes:
        train: Training images.
        val: Validation images.
        masks: Masks of both, if they are learned from.
        val_source: Source of the validation images, which is that of the training images if none was named.
        description: Both sources and the numbers of images, for the folder of the run.
        lists: Images of the sources, for the folder of the run.
    """

    train: ImageDataset
    val: ImageDataset
    masks: tuple[MaskDataset, MaskDataset] | None
    val_source: DataSource
    description: dict[str, Any]
    lists: dict[str, ImageList]


def _check_data(
    source: DataSource,
    images: ImageDataset,
    train_masks: MaskDataset | None,
    val: DataSource | None,
    recipe: Recipe,
    *,
    skip_bad: bool,
    progress: bool,
) -> _RunData:
    """Read all images once, and hold out validation images if none are named.

    Args:
        source: Source of the training images.
        images: Its images.
        train_masks: Their masks, if they are learned from.
        val: Source of the validation images, if one was named.
        recipe: Settings of the run.
        skip_bad: Leave out images that cannot be read.
        progress: Show the progress.
    """
    train_data, train_infos, num_bad = _check_images(images, train_masks, skip_bad=skip_bad, progress=progress)
    if train_masks is None:
        for warning in (*check_label_evidence(train_data), *few_image_warnings(train_data)):
            logger.warning(warning)
    lists = {"train": list_images(train_data, train_infos)}
    if val is None:
        val_source, val_masks = source, train_masks
        train_data, val_data = hold_out(train_data, recipe.validation.fraction, seed=recipe.training.seed)
    else:
        val_source, images = val, val.open(train_data.classes, skip_missing=skip_bad)
        val_masks = None if train_masks is None else val.open_masks(images.classes)
        val_data, val_infos, more_bad = _check_images(images, val_masks, skip_bad=skip_bad, progress=progress)
        lists["validation"] = list_images(val_data, val_infos)
        num_bad += more_bad
    if not len(val_data):
        raise DataError(f"{val_source.path}: no images can be held out for validation", "name some with {val}")
    return _RunData(
        train=train_data,
        val=val_data,
        masks=None if train_masks is None or val_masks is None else (train_masks, val_masks),
        val_source=val_source,
        description={
            "train": {**source.describe(), "image_count": len(train_data)},
            "validation": {**val_source.describe(), "image_count": len(val_data)},
            "skipped": num_bad,
        },
        lists=lists,
    )


def _check_images(
    images: ImageDataset, masks: MaskDataset | None, *, skip_bad: bool, progress: bool
) -> tuple[ImageDataset, list[ImageInfo], int]:
    """Images that can be read, with the labels of their masks if learned from, facts about them, and number of others.

    Args:
        images: Images of a source.
        masks: Their masks, if they are learned from.
        skip_bad: Leave out images that cannot be read.
        progress: Show the progress.
    """
    if masks is not None:
        images = images_with_mask_labels(images, masks, progress=progress)
    return readable_images(images, skip_bad=skip_bad, progress=progress)


def readable_images(
    data: ImageDataset, *, skip_bad: bool, progress: bool = False
) -> tuple[ImageDataset, list[ImageInfo], int]:
    """Check that all images can be read.

    Args:
        data: Images to check.
        skip_bad: Leave out images that cannot be read, instead of raising an error.
        progress: Show a progress bar.

    Returns:
        The images that can be read, facts about them, and the number of the others.
    """
    results = decode_all(data, progress=progress)
    infos = {i: result for i, result in enumerate(results) if isinstance(result, ImageInfo)}
    bad = [result for result in results if isinstance(result, DataError)]
    if bad and not skip_bad:
        first = bad[0]
        raise DataError(
            f"{len(bad)} of {len(data)} images cannot be read; the first: {first}",
            "repair or remove them, or leave them out with {skip_bad}",
        )
    if bad:
        logger.warning("%d of %d images cannot be read and are left out; the first: %s", len(bad), len(data), bad[0])
    return (data.subset(list(infos)) if bad else data), list(infos.values()), len(bad)


def check_label_evidence(data: ImageDataset) -> list[str]:
    """Check that the labels suffice to learn from.

    Every class needs an image, and at least one class must be absent from some images. Images without tags are
    negatives: they show none of the classes.

    Returns:
        Warnings, a line each.
    """
    counts = data.labels.sum(0)
    missing = [name for name, count in zip(data.classes, counts, strict=True) if count == 0]
    if missing:
        others = f" (nor {len(missing) - 1} more)" if missing[1:] else ""
        raise DataError(
            f"no image is tagged {missing[0]!r}{others}, so it cannot be learned",
            "add images of it or remove the class",
        )
    if (counts == len(data)).all():
        subject = f"every image is tagged {data.classes[0]!r}" if len(counts) == 1 else "every image has all classes"
        raise DataError(
            f"{subject}: masks are learned from what distinguishes images",
            "add images without it, which need no tags" if len(counts) == 1 else "add images that lack some",
        )
    return [
        f"class {name!r} occurs in every image: nothing shows what it is not, so its masks may cover anything"
        for name, count in zip(data.classes, counts, strict=True)
        if count == len(data)
    ]


def few_image_warnings(data: ImageDataset) -> list[str]:
    """What `check` calls a problem, but training can do: it learns from few images, and learns little.

    Returns:
        Warnings, a line each.
    """
    few, few_of_class = DATASET_LEVELS[0], CLASS_LEVELS[0]
    warnings = []
    if len(data) < few:
        warnings.append(f"{len(data)} images are too few to learn from; add images, {few} at the least")
    counts = zip(data.classes, data.labels.sum(0).tolist(), strict=True)
    if rare := [f"{name}: {count:g}" for name, count in counts if count < few_of_class]:
        names = ", ".join(rare[:2]) + (", ..." if rare[2:] else "")
        warnings.append(
            f"{len(rare)} class{'' if len(rare) == 1 else 'es'} ({names}) with fewer than {few_of_class} images, too "
            "few to learn from; add images or remove the class"
        )
    return warnings


def images_with_mask_labels(data: ImageDataset, masks: MaskDataset, *, progress: bool = False) -> ImageDataset:
    """Check all masks, and take the image-level labels from them: the classes that have a pixel.

    Args:
        data: Images; those without a mask are left out.
        masks: Masks of the images.
        progress: Show a progress bar.
    """
    indices = positions_with_masks(data, masks)
    if len(indices) < len(data):
        logger.warning("%d of %d images have no mask and are left out", len(data) - len(indices), len(data))
    images = data.subset(indices)
    labels = torch.zeros_like(images.labels)
    with ThreadPoolExecutor() as pool:
        values = pool.map(lambda image_id: values_in(masks[image_id]), images.image_ids)
        for index, classes in enumerate(track(values, "Checking masks", len(images), quiet=not progress)):
            labels[index, [value - 1 for value in classes]] = 1
    return ImageDataset(images.classes, images.image_ids, labels, images.images)


def _inference_settings(recipe: Recipe, config: ModelConfig) -> InferenceSettings:
    """Inference settings of a recipe; automatic ones are the paper's, and the working size follows the crop."""
    changes = {key: value for key, value in recipe.inference.model_dump().items() if value is not None}
    settings = replace(default_settings(config), **{"size": size_for_crop(recipe.transforms.crop), **changes})
    settings.check_method(config.method)
    return settings


def _data_summary(data: _RunData, recipe: Recipe) -> str:
    purpose = "thresholds are tuned" if data.masks is None else "the temperature is chosen"
    if recipe.validation.checkpoint == "best":
        purpose += " and the best checkpoint is chosen"
    counts = zip(data.val.classes, data.val.labels.sum(0), strict=True)
    absent = [name for name, count in counts if not count]
    return (
        f"Training on {len(data.train):,} images; {purpose} on {len(data.val):,} validation images "
        f"({'labels only' if data.masks is None else 'their masks'})"
    ) + (f"; none of these has {', '.join(absent)}" if absent else "")


def _measured_masks(data: _RunData) -> MaskDataset | None:
    """Masks of the validation images that are evaluated after each epoch, for the log only."""
    masks = data.val_source.masks_if_any(data.train.classes) if data.masks is None else data.masks[1]
    if masks is not None and not any(image_id in masks for image_id in data.val.image_ids):
        logger.info("No validation image has a mask: mIoU is not logged")
        return None
    return masks


class _MaskMetrics:
    """Evaluates the masks of a network after an epoch, for the log only.

    Args:
        data: Validation images; only the first are evaluated.
        masks: Their ground-truth masks.
        settings: Inference settings of the run.
        progress: Show the progress.
    """

    def __init__(self, data: ImageDataset, masks: MaskDataset, settings: InferenceSettings, *, progress: bool) -> None:
        self._data = data.subset(range(min(len(data), MAX_EVALUATED)))
        self._masks: MaskDataset | None = masks
        self._settings, self._progress = settings, progress

    def __call__(self, network: Network) -> dict[str, float]:
        if self._masks is None:
            return {}
        device = next(network.parameters()).device
        # On a CPU the fast paths take longer to prepare than they save on so few images.
        predictor = Predictor(network, self._settings, device=str(device), optimize=device.type == "cuda")
        try:
            result = evaluate_masks(predictor, self._data, self._masks, progress=self._progress)
        except DataError as error:  # masks are not needed for training
            logger.warning("mIoU is not logged: %s", error)
            self._masks = None
            return {}
        return {f"mIoU {protocol}": 100 * result.mean_iou(protocol) for protocol in result.confusion}


def _tune(model: Predictor, data: _RunData, recipe: Recipe, *, progress: bool) -> InferenceSettings:
    """Inference settings of a trained model: the temperature from masks, or thresholds from tags."""
    from tagseg.training.calibration import calibrate  # imports torchvision

    if data.masks is None:
        return tune_on_tags(model, data.val, progress=progress)
    network, (_, val_masks) = model.engine.network, data.masks
    temperature = calibrate(network, data.val, val_masks, recipe.transforms, progress=progress)
    return replace(model.settings, temperature=temperature)
