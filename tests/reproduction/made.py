"""Results and images made for these tests."""

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
from tests.data.writing import write_zip

CLASSES = 1 + len(VOC_CLASSES)


def evaluation(name: str, right: int, *, images: int = 1149) -> Evaluation:
    """An evaluation as the measurement of this name makes it: of each class's 100 pixels so many are right.

    The others are taken for the next class; with true tags ten more are right.
    """
    how = MEASUREMENTS[name]
    settings = InferenceSettings(thresholds_from="tags" if how.threshold is None else "paper")
    return Evaluation(
        class_names=VOC_CLASSES,
        confusion={"predicted-tags": _matrix(right), "true-tags": _matrix(right + 10)},
        images=images,
        without_masks=0,
        settings=settings.for_tta(how.tta),
        crf=how.crf,
        model={"name": "checkpoint" if how.last else "run", "method": "single-stage", "backbone": "resnet50"},
        seconds=10.0,
        device="a device",
    )


def _matrix(right: int) -> ConfusionMatrix:
    counts = np.eye(CLASSES, dtype=np.int64) * right
    counts += np.roll(np.eye(CLASSES, dtype=np.int64), 1, axis=1) * (100 - right)
    return ConfusionMatrix(CLASSES, counts)


def write_evaluation(results: Path, run: str, name: str, right: int, *, images: int = 1149) -> None:
    (results / run).mkdir(parents=True, exist_ok=True)
    (results / run / f"{name}.json").write_text(evaluation(name, right, images=images).to_json())


def write_training(results: Path, run: str, *changes: str) -> None:
    """A run of two sessions and 40 steps: 10 images a second for its first 10 steps, then 20."""
    (results / run).mkdir(parents=True, exist_ok=True)
    schedule = ("training.epochs=2", "training.classification_epochs=1", "training.batch_size=20")
    recipe = Recipe.load(run, [*schedule, *changes])
    config = {"recipe": recipe.to_dict(), "classes": list(VOC_CLASSES), "data": {"train": "/a/b.csv"}}
    (results / run / "config.json").write_text(json.dumps(config))
    journal = MetricsLog(results / run)
    journal.write("session", 0, session=1)
    journal.write("train", 10, epoch=1, images_per_second=10.0, gpu_gib=3.0)
    journal.write("train", 20, epoch=1, images_per_second=20.0, gpu_gib=3.5)
    journal.write("validation", 20, epoch=1, loss=1.0, **_masks(30.0))
    journal.write("session", 30, session=2)  # ten steps went by after the last line and before the checkpoint
    journal.write("train", 40, epoch=2, images_per_second=20.0, gpu_gib=2.5)
    journal.write(
        "validation", 40, epoch=2, loss=1.5, **_masks(40.0)
    )  # higher than before, but masks have been trained


def _masks(iou: float) -> dict[str, float]:
    return {"mIoU predicted-tags": iou, "mIoU true-tags": iou + 10}


def write_packed_shapes(folder: Path) -> Path:
    """Generated shapes, packed as VOC may be: two tables, zips beside them, and masks of a part of the training."""
    folder.mkdir(parents=True, exist_ok=True)
    for table, split, count in (("train_aug", "train", 24), ("val", "val", 6)):
        data, ground_truth = shapes(count, split=split, size=48), shapes_masks(count, split=split, size=48)
        value = np.array([0, *(1 + sorted(data.classes).index(name) for name in data.classes)], np.uint8)
        images = {f"images/{name}.png": _png(data.images.read(i)) for i, name in enumerate(data.image_ids)}
        masks = {f"masks/{name}.png": _png(value[ground_truth[name]]) for name in data.image_ids}
        write_zip(folder / f"{table}.zip", images | (masks if table == "val" else {}))
        if table == "train_aug":
            write_zip(folder / "train-masks.zip", dict(list(masks.items())[:5]))
        tags = (" ".join(data.classes[int(k)] for k in row.nonzero()) for row in data.labels)
        rows = [f"{name}.png,{labels}" for name, labels in zip(data.image_ids, tags, strict=True)]
        (folder / f"{table}.csv").write_text("\n".join(["image,labels", *rows]) + "\n")
    return folder


def _png(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "png")
    return buffer.getvalue()
