"""The whole job on built-in images, on any CPU, in minutes: train, predict, measure, report, and compare with CAM."""

import time
from dataclasses import replace
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.table import Table

from tagseg.api import evaluate, train, write_report
from tagseg.data import DataSource, shapes, shapes_masks
from tagseg.evaluation import best_background
from tagseg.predict import Predictor
from tagseg.predict.render import mask_image
from tagseg.report.contact_sheet import contact_sheet

IMAGES, UNSEEN, SHOWN = 3000, 400, 6


def run_demo(out: str | Path = "demo") -> Path:
    """Train the method and the CAM baseline on generated shapes, and measure both on images that neither has seen.

    Args:
        out: the folder for everything that is made.

    Returns:
        The HTML report.
    """
    out, console, began = Path(out), Console(), time.monotonic()
    data, unseen = DataSource(f"shapes:{IMAGES}"), DataSource(f"shapes:{UNSEEN}", split="test")
    console.print(f"Training on {IMAGES} generated images, from their tags alone; a few minutes on two cores.")
    method = train(data, out / "method", recipe="shapes")
    console.print("Training the CAM baseline on the same images.")
    cam = train(data, out / "cam", recipe="cam-shapes")
    images, ground_truth = unseen.open(), unseen.open_masks()
    tuned = best_background(cam, images, ground_truth, protocol="predicted-tags")
    cam.settings = replace(cam.settings, background=tuned.best, thresholds_from="masks")
    rows = {
        "tagseg": evaluate(unseen, model=method, out=out / "method"),
        "CAM": evaluate(unseen, model=cam, out=out / "cam"),
    }

    table = Table("", "mIoU, predicted tags", "mIoU, true tags", "its threshold")
    for name, result in rows.items():
        table.add_row(
            name,
            f"{100 * result.mean_iou('predicted-tags'):.1f}",
            f"{100 * result.mean_iou('true-tags'):.1f}",
            "none" if name == "tagseg" else f"{tuned.best:g}, the best for these masks",
        )
    sheet = _image_sheet(method, cam, out / "images.png")
    page = write_report(out / "method")
    console.print(table)
    console.print(
        f"{UNSEEN} unseen images, one scale, no CRF; {time.monotonic() - began:.0f} s in all\n"
        f"images: {sheet}\nreport: {page}",
        highlight=False,
    )
    return page


def _image_sheet(method: Predictor, cam: Predictor, path: Path) -> Path:
    """Write unseen images in columns, with rows for the image, the masks of CAM and tagseg, and the ground truth."""
    data, masks = shapes(SHOWN, split="test", size=2 * 96), shapes_masks(SHOWN, split="test", size=2 * 96)
    images = [Image.fromarray(data.images.read(index)) for index in range(len(data))]
    inputs = [image.resize((96, 96)) for image in images]  # the size that both networks were trained at
    rows = {
        "image": images,
        "CAM": [mask_image(cam.predict(image).mask) for image in inputs],
        "tagseg": [mask_image(method.predict(image).mask) for image in inputs],
        "ground truth": [mask_image(masks[name]) for name in data.image_ids],
    }
    return contact_sheet(list(rows.values()), list(rows), path, side=160, text_size=20)
