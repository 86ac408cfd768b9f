"""Write the figures of the documentation that show photos and pages: python -m tools.figures docs

photos.png: masks of the demo's photos. stages.png: a photo from score map to pseudo label. report.png: the top of the
report that the notebook own_photos writes, as Chromium shows it. Figures of measurements are drawn by
tools/performance_doc.py.
"""

import os
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

import tagseg
from tagseg.demo import segment_photos
from tagseg.errors import DataError
from tools._documents import run_tool
from tools.notebooks import execute

_IGNORED, _BACKGROUND, _PERSON = (200, 200, 200), (0, 0, 0), (192, 128, 128)  # colors of a pseudo label
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_REPORT_SIZE = 1000, 1000


def write_figures(folder: Path) -> None:
    """Write all figures.

    Args:
        folder: Folder of the documents.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: is not a folder", "name the folder of the documents")
    segment_photos(folder / "photos.png")
    plot_stages(folder / "stages.png")
    with tempfile.TemporaryDirectory() as empty:
        execute(folder / "notebooks" / "own_photos.ipynb", Path(empty))
        screenshot(Path(empty) / "runs" / "photos" / "report.html", folder / "report.png", _REPORT_SIZE)


def plot_stages(file: Path) -> None:
    """Plot a photo, the default model's score map and masks of the person in it, and their pseudo label.

    Args:
        file: The PNG file.
    """
    with Image.open(str(files("tagseg") / "photos" / "astronaut.jpg")) as photo:
        pixels = np.array(photo)
    model = tagseg.load(device="cpu", optimize=False)
    network, person = model.engine.network, model.classes.index("person")
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
    with torch.inference_mode():
        out = network(network.normalize(image), full_size=False)
    small = F.interpolate(image, out.masks.shape[-2:], mode="bilinear", align_corners=True)
    refined = {count: tagseg.pamr(small, out.masks, iterations=count) for count in (1, 3, 10)}
    tags = torch.zeros(1, len(model.classes))
    tags[0, person] = 1
    pseudo = tagseg.pseudo_labels(refined[10], tags, size=(image.shape[-2], image.shape[-1]))[0].numpy()
    colors = np.array([_IGNORED, _BACKGROUND, _PERSON], np.uint8)

    panels: dict[str, NDArray[np.generic]] = {
        "photo": pixels,
        "score map": out.logits[0, 1 + person].relu().numpy(),
        "mask": out.masks[0, 1 + person].numpy(),
        **{
            f"PAMR, {count} iteration{'s' * (count > 1)}": maps[0, 1 + person].numpy()
            for count, maps in refined.items()
        },
        "pseudo label": colors[np.searchsorted([tagseg.UNLABELED, 0, 1 + person], pseudo)],
    }
    figure = Figure(figsize=(2 * len(panels), 2.1), layout="tight")
    for axes, (title, panel) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        axes.imshow(panel)
        axes.set_title(title)
        axes.axis("off")
    figure.savefig(file, dpi=100)
    reduce_colors(file)


def screenshot(page: Path, file: Path, size: tuple[int, int]) -> None:
    """Write what Chromium shows of a page.

    Args:
        page: HTML file.
        file: The PNG file.
        size: Width and height of the window.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise DataError(f"{file}: is not written, because there is no Chromium", "install the package chromium")
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--hide-scrollbars", f"--user-data-dir={profile}"]
        # Chromium refuses to run as root in its sandbox, as in a container.
        command += ["--no-sandbox"] * (hasattr(os, "geteuid") and os.geteuid() == 0)
        command += [f"--window-size={size[0]},{size[1]}", f"--screenshot={file.resolve()}", page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    reduce_colors(file)


def reduce_colors(file: Path) -> None:
    """Rewrite a PNG file with a palette, which a quarter of the bytes suffices for."""
    with Image.open(file) as image:
        reduced = image.convert("RGB").quantize(256)
    reduced.save(file, optimize=True)


if __name__ == "__main__":
    run_tool(write_figures, __doc__, "folder")
