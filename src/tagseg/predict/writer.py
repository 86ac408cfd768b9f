"""Write predictions to a folder: masks, overlays, confidence and one JSON file."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.progress import track

from tagseg.errors import ConfigError, make_folder, writing
from tagseg.predict.pipeline import read_ahead
from tagseg.predict.prediction import Prediction
from tagseg.predict.predictor import PredictionStream
from tagseg.predict.render import DEFAULT_ALPHA, check_alpha, draw_legend, mask_image

INDEX_FILE = "predictions.json"
LEGEND_FILE = "legend.png"
_MAX_LEAST_CERTAIN = 20
_MAX_JPEG_SIDE = 65_500  # longer overlays are reduced


@dataclass(frozen=True)
class ImageFiles:
    """Files to write for each image: the mask, NAME_mask.png, and others.

    Attributes:
        overlay: Write NAME_overlay.jpg, of exactly the image's size, and one legend.png.
        alpha: Opacity of the overlay's colors, from 0 to 1.
        legend: Add a legend to the right of each overlay instead.
        confidence: Write NAME_confidence.png.
    """

    overlay: bool = True
    alpha: float = DEFAULT_ALPHA
    legend: bool = False
    confidence: bool = False

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def names(self, name: str) -> dict[str, str]:
        """Files of an image by kind, relative to the folder."""
        kinds = {
            "mask": "png",
            "overlay": "jpg" if self.overlay else None,
            "confidence": "png" if self.confidence else None,
        }
        return {kind: f"{name}_{kind}.{suffix}" for kind, suffix in kinds.items() if suffix}

    def draw(self, kind: str, prediction: Prediction) -> Image.Image:
        """Draw the file of a kind."""
        if kind == "mask":
            return mask_image(prediction.mask)
        if kind == "confidence":
            return prediction.confidence_image()
        overlay = prediction.overlay(alpha=self.alpha, legend=self.legend)
        overlay.thumbnail((_MAX_JPEG_SIDE, _MAX_JPEG_SIDE))
        return overlay


def write_predictions(
    predictions: Iterable[Prediction], out_dir: str | Path, *, files: ImageFiles | None = None, progress: bool = False
) -> Path:
    """Write each image's mask (NAME_mask.png), other files such as an overlay, and one predictions.json for all.

    Two images of one name become NAME and NAME-2. Images that a stream skipped are listed under `skipped`. After an
    error predictions.json lists what was written before it.

    Args:
        predictions: Written as they come.
        out_dir: Created if it does not exist.
        files: Files to write for each image.
        progress: Show a progress bar.

    Returns:
        Path of predictions.json.
    """
    out = Path(out_dir)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: is a file", "name a folder for the predictions with {out}")
    make_folder(out)
    writer = _Writer(out, files or ImageFiles())
    total = len(predictions) if isinstance(predictions, PredictionStream) else None
    tracked = track(predictions, "Predicting", total, console=Console(stderr=True), disable=not progress)
    skipped = predictions.skipped if isinstance(predictions, PredictionStream) else []
    try:
        for _ in read_ahead(writer.write, writer.with_file_names(tracked)):
            pass
    except BaseException:
        if writer.entries:  # what is written before an unreadable image or Ctrl-C is not lost
            writer.write_index(skipped)
        raise
    return writer.write_index(skipped)


class _Writer:
    """Writes files in threads and collects the entries of predictions.json.

    Attributes:
        entries: Entry of each image that was written, by file name.
    """

    def __init__(self, out: Path, files: ImageFiles) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self._out, self._image_files = out, files
        self._file_names: list[str] = []  # in the order of the predictions

    def with_file_names(self, predictions: Iterable[Prediction]) -> Iterator[tuple[str, Prediction]]:
        """Pair each prediction with an unused file name."""
        used: set[str] = set()
        for prediction in predictions:
            self._file_names.append(_unused_name(prediction.name, used))
            yield self._file_names[-1], prediction

    def write(self, named: tuple[str, Prediction]) -> None:
        """Write the files of one image."""
        name, prediction = named
        files = self._image_files.names(name)
        with writing(self._out):
            (self._out / name).parent.mkdir(parents=True, exist_ok=True)
            for kind, file in files.items():
                self._image_files.draw(kind, prediction).save(self._out / file, quality=90)
        self.entries[name] = {**prediction.summary(), "files": files}

    def write_index(self, skipped: list[str]) -> Path:
        """Write predictions.json, and the legend of all classes found."""
        images = [self.entries[name] for name in self._file_names if name in self.entries]
        index = {"images": images, "least_certain": least_certain(self.entries), "skipped": skipped}
        path = self._out / INDEX_FILE
        with writing(self._out):
            path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
            if self._image_files.overlay and not self._image_files.legend:
                found = {entry["value"]: entry["name"] for image in images for entry in image["classes"]}
                draw_legend(sorted(found.items())).save(self._out / LEGEND_FILE)
        return path


def least_certain(entries: Mapping[str, dict[str, Any]]) -> list[str]:
    """File names of the images to look at first, the least certain one first."""
    return sorted(entries, key=lambda name: -entries[name]["uncertainty"])[:_MAX_LEAST_CERTAIN]


def _unused_name(name: str, used: set[str]) -> str:
    unused, number = name, 1
    while unused.lower() in used:  # some file systems do not distinguish a.png from A.png
        number += 1
        unused = f"{name}-{number}"
    used.add(unused.lower())
    return unused
