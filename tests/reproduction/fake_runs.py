"""Fake evaluations, fake training runs and a small dataset in the layout of VOC."""

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from tagseg.data import shapes, shapes_masks
from tagseg.data.voc import VOC_CLASSES
from tagseg.evaluation import ConfusionMatrix, Evaluation
from tagseg.predict import InferenceSettings
from tagseg.reproduction.measurements import MEASUREMENTS
from tagseg.training.logging import MetricsLog
from tagseg.training.recipe import Recipe
from tests.data.small_datasets import write_zip

NUM_CLASSES = 1 + len(VOC_CLASSES)


def evaluation(name: str, correct: int, *, images: int = 1149) -> Evaluation:
    """Build an evaluation with the settings of a measurement.

    Of each class's 100 pixels, `correct` are classified correctly and the others as the next class; with true tags,
    ten more are correct.
    """
    measurement = MEASUREMENTS[name]
    settings = InferenceSettings(thresholds_from="tags" if measurement.threshold is None else "paper")
    return Evaluation(
        class_names=VOC_CLASSES,
        confusion={"predicted-tags": _confusion(correct), "true-tags": _confusion(correct + 10)},
        images=images,
        without_masks=0,
        settings=settings.for_tta(measurement.tta),
        crf=measurement.crf,
        model={"name": "checkpoint" if measurement.last else "run", "method": "single-stage", "backbone": "resnet50"},
        seconds=10.0,
        device="a device",
    )


def _confusion(correct: int) -> ConfusionMatrix:
    counts = np.eye(NUM_CLASSES, dtype=np.int64) * correct
    counts += np.roll(np.eye(NUM_CLASSES, dtype=np.int64), 1, axis=1) * (100 - correct)
    return ConfusionMatrix(NUM_CLASSES, counts)


def write_evaluation(results: Path, run: str, name: str, correct: int, *, images: int = 1149) -> None:
    (results / run).mkdir(parents=True, exist_ok=True)
    (results / run / f"{name}.json").write_text(evaluation(name, correct, images=images).to_json())


def write_training(results: Path, run: str, *changes: str) -> None:
    """Write a run of two sessions and 40 steps, with 10 images/s in the first 10 steps and 20 afterwards."""
    (results / run).mkdir(parents=True, exist_ok=True)
    schedule = ("training.epochs=2", "training.classification_epochs=1", "training.batch_size=20")
    recipe = Recipe.load(run, [*schedule, *changes])
    config = {"recipe": recipe.to_dict(), "classes": list(VOC_CLASSES), "data": {"train": "/a/b.csv"}}
    (results / run / "config.json").write_text(json.dumps(config))
    log = MetricsLog(results / run)
    log.write("session", 0, session=1)
    log.write("train", 10, epoch=1, images_per_second=10.0, gpu_gib=3.0)
    log.write("train", 20, epoch=1, images_per_second=20.0, gpu_gib=3.5)
    log.write("validation", 20, epoch=1, loss=1.0, **_mask_metrics(30.0))
    log.write("session", 30, session=2)  # resumed from a checkpoint ten steps after the last line
    log.write("train", 40, epoch=2, images_per_second=20.0, gpu_gib=2.5)
    log.write(
        "validation", 40, epoch=2, loss=1.5, **_mask_metrics(40.0)
    )  # higher, but the first epoch with pseudo labels


def _mask_metrics(iou: float) -> dict[str, float]:
    return {"mIoU predicted-tags": iou, "mIoU true-tags": iou + 10}


def write_packed_shapes(folder: Path) -> Path:
    """Write generated shapes as two tables with zips beside them; only five training images have masks."""
    folder.mkdir(parents=True, exist_ok=True)
    for table, split, count in (("train_aug", "train", 24), ("val", "val", 6)):
        data, ground_truth = shapes(count, split=split, size=48), shapes_masks(count, split=split, size=48)
        value = np.array([0, *(1 + sorted(data.classes).index(name) for name in data.classes)], np.uint8)
        images = {f"images/{name}.png": _png(data.images.read(i)) for i, name in enumerate(data.image_ids)}
        masks = {f"masks/{name}.png": _png(value[ground_truth[name]]) for name in data.image_ids}
        write_zip(folder / f"{table}.zip", images | (masks if table == "val" else {}))
        if table == "train_aug":
            write_zip(folder / "train-masks.zip", dict(list(masks.items())[:5]))
        tags = (";".join(data.classes[int(k)] for k in row.nonzero()) for row in data.labels)
        rows = [f"{name}.png,{labels}" for name, labels in zip(data.image_ids, tags, strict=True)]
        (folder / f"{table}.csv").write_text("\n".join(["image,labels", *rows]) + "\n")
    return folder


def _png(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "png")
    return buffer.getvalue()
