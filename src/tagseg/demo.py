"""The whole job on built-in pictures, on any CPU, in minutes: train, predict, measure, report, and compare with CAM."""

import time
from dataclasses import replace
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.table import Table

from tagseg.api import evaluate, report, train
from tagseg.data import shapes, shapes_truth
from tagseg.evaluation import best_background
from tagseg.inference import Predictor
from tagseg.inference.palette import to_indexed
from tagseg.inference.tiles import Mask
from tagseg.source import Source

PICTURES, UNSEEN, SHOWN = 3000, 200, 6


def demo(out: str | Path = "demo") -> Path:
    """Train the method and the CAM baseline on generated shapes, and measure both on pictures that neither has seen.

    Args:
        out: the folder for everything that is made.

    Returns:
        The HTML report.
    """
    out, console, began = Path(out), Console(), time.monotonic()
    data, unseen = Source(f"shapes:{PICTURES}"), Source(f"shapes:{UNSEEN}", split="val")
    console.print(f"Training on {PICTURES} generated pictures, from their tags alone; a few minutes on two cores.")
    method = train(data, out / "method", recipe="shapes")
    console.print("Training the CAM baseline on the same pictures.")
    cam = train(data, out / "cam", recipe="cam-shapes")
    pictures, truth = unseen.open(), unseen.truth()
    tuned = best_background(cam, pictures, truth, protocol="predicted-tags")
    cam.settings = replace(cam.settings, background=tuned.best, chosen_from="masks")
    rows = {"tagseg": evaluate(method, unseen, out=out / "method"), "CAM": evaluate(cam, unseen, out=out / "cam")}

    table = Table("", "mIoU, predicted tags", "mIoU, true tags", "its threshold")
    for name, result in rows.items():
        table.add_row(
            name,
            f"{100 * result.mean_iou('predicted-tags'):.1f}",
            f"{100 * result.mean_iou('true-tags'):.1f}",
            "none" if name == "tagseg" else f"{tuned.best:g}, the best for these masks",
        )
    sheet = _picture_sheet(method, cam, out / "pictures.png")
    page = report(out / "method")
    console.print(table)
    console.print(
        f"{UNSEEN} unseen pictures, one scale, no CRF; {time.monotonic() - began:.0f} s in all\n"
        f"pictures: {sheet}\nreport: {page}",
        highlight=False,
    )
    return page


def _picture_sheet(method: Predictor, cam: Predictor, path: Path) -> Path:
    """Unseen pictures in columns: the picture, CAM's mask, ours, the truth."""
    data, truth = shapes(SHOWN, split="val", size=192), shapes_truth(SHOWN, split="val", size=192)
    side, gap = 192, 8
    sheet = Image.new("RGB", (SHOWN * (side + gap) - gap, 4 * (side + gap) - gap), "white")
    for column, name in enumerate(data.names):
        picture = Image.fromarray(data[column][0].permute(1, 2, 0).numpy())
        small = picture.resize((96, 96))
        shown = [
            picture,
            _shown(cam.predict(small).mask, side),
            _shown(method.predict(small).mask, side),
            _shown(truth[name], side),
        ]
        for row, tile in enumerate(shown):
            sheet.paste(tile, (column * (side + gap), row * (side + gap)))
    sheet.save(path)
    return path


def _shown(mask: Mask, side: int) -> Image.Image:
    return to_indexed(mask).convert("RGB").resize((side, side), Image.Resampling.NEAREST)
