"""Segment photos with the default model; then train, evaluate and report on generated images, beside the CAM baseline.

Masks of the photos take seconds, all of it minutes on any CPU.
"""

import time
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from tagseg.api import evaluate, train, write_report
from tagseg.data import DataSource, shapes, shapes_masks
from tagseg.evaluation import best_background
from tagseg.predict import Prediction, Predictor, load
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS
from tagseg.predict.render import mask_image, overlay_palette
from tagseg.report.contact_sheet import contact_sheet, mask_legend

_PHOTO_FOLDER = Path(__file__).parent / "photos"  # in the package, with their sources and licenses
_PHOTOS = ("chelsea.jpg", "astronaut.jpg", "grace_hopper.jpg")
_NUM_TRAIN, _NUM_TEST = 3000, 400
_NUM_SHEET_IMAGES = 6
_TRAIN_SIZE = 96


def run_demo(out: str | Path = "demo") -> Path:
    """Segment photos, then train the method and the CAM baseline on generated shapes and evaluate both on test images.

    Args:
        out: Folder to write to.

    Returns:
        Path of the HTML report.
    """
    out, console, start = Path(out), Console(), time.monotonic()
    photo_sheet = out / "photos.png"
    console.print(f"Segmenting {len(_PHOTOS)} photos with the model that comes with tagseg, with TTA and CRF")
    for prediction in segment_photos(photo_sheet):
        console.print(f"  {prediction.name}: {', '.join(prediction.labels) or 'no known class found'}", highlight=False)
    console.print(f"photos: {photo_sheet}\n", highlight=False)

    train_data, test_data = DataSource(f"shapes:{_NUM_TRAIN}"), DataSource(f"shapes:{_NUM_TEST}", split="test")
    console.print(f"Training tagseg on the tags of {_NUM_TRAIN:,} generated images: a few minutes on two cores")
    method = train(train_data, out / "method", recipe="shapes", progress=True)
    console.print("Training the CAM baseline on the same images")
    cam = train(train_data, out / "cam", recipe="cam-shapes", progress=True)
    tuning = best_background(cam, test_data.open(), test_data.open_masks(), protocol=PREDICTED_TAGS)
    cam.settings = replace(cam.settings, background=tuning.best, thresholds_from="masks")
    evaluations = {
        "tagseg": evaluate(test_data, model=method, out=out / "method"),
        "CAM": evaluate(test_data, model=cam, out=out / "cam"),
    }

    table = Table("", "mIoU (predicted tags)", "mIoU (true tags)", "background threshold")
    for name, evaluation in evaluations.items():
        table.add_row(
            name,
            f"{100 * evaluation.mean_iou(PREDICTED_TAGS):.1f}",
            f"{100 * evaluation.mean_iou(TRUE_TAGS):.1f}",
            "none" if name == "tagseg" else f"{tuning.best:g}, tuned on these masks",
        )
    sheet = _write_sheet(method, cam, out / "images.png")
    page = write_report(out / "method", progress=True)
    console.print(table)
    console.print(
        f"{_NUM_TEST} test images, single-scale, no CRF; {time.monotonic() - start:.0f} s in total\n"
        f"photos: {photo_sheet}\nimages: {sheet}\nreport: {page}",
        highlight=False,
    )
    return page


def segment_photos(path: str | Path) -> list[Prediction]:
    """Segment the photos that come with tagseg by the default model, with test-time augmentation and CRF.

    Args:
        path: PNG file to write: the photos in columns, and below them the same photos with their masks.

    Returns:
        Prediction for each photo.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # seconds suffice, and beside another job several threads wait for each other much longer
    try:
        model = load()
        predictions = model.predict([_PHOTO_FOLDER / name for name in _PHOTOS], tta=True, crf=True)
    finally:
        torch.set_num_threads(threads)
    rows = {
        "photo": [Image.fromarray(prediction.image) for prediction in predictions],
        "tagseg": [prediction.overlay() for prediction in predictions],
    }
    legend = mask_legend(
        [prediction.mask for prediction in predictions],
        dict(enumerate(model.classes, start=1)),
        overlay_palette(1 + len(model.classes)),
    )
    contact_sheet(list(rows.values()), list(rows), Path(path), legend=legend, side=240, same_height=True, text_size=20)
    return predictions


def _write_sheet(method: Predictor, cam: Predictor, path: Path) -> Path:
    """Write test images in columns, with rows for the image, the masks of CAM and tagseg, and the ground truth."""
    size = 2 * _TRAIN_SIZE  # the same scenes, drawn larger for display
    data = shapes(_NUM_SHEET_IMAGES, split="test", size=size)
    masks = shapes_masks(_NUM_SHEET_IMAGES, split="test", size=size)
    images = [Image.fromarray(data.images.read(index)) for index in range(len(data))]
    inputs = [image.resize((_TRAIN_SIZE, _TRAIN_SIZE)) for image in images]
    rows = {
        "image": images,
        "CAM": [mask_image(cam.predict(image).mask) for image in inputs],
        "tagseg": [mask_image(method.predict(image).mask) for image in inputs],
        "ground truth": [mask_image(masks[image_id]) for image_id in data.image_ids],
    }
    return contact_sheet(list(rows.values()), list(rows), path, side=160, text_size=20)
