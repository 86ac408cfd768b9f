"""Write predictions to a folder: masks, overlays and one JSON file."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from tagseg.errors import ConfigError, make_folder, writing
from tagseg.predict.pipeline import read_ahead
from tagseg.predict.prediction import Prediction
from tagseg.predict.predictor import PredictionStream

INDEX_FILE = "predictions.json"


def write_predictions(predictions: Iterable[Prediction], out_dir: str | Path, *, progress: bool = False) -> Path:
    """Write each image's mask (NAME_mask.png) and overlay (NAME_overlay.jpg), and one predictions.json for all.

    Two images of one name become NAME and NAME-2. Images that a stream skipped are listed under `skipped`. After an
    error predictions.json lists what was written before it.

    Args:
        predictions: Written as they come.
        out_dir: Created if it does not exist.
        progress: Show a progress bar.

    Returns:
        Path of predictions.json.
    """
    out = Path(out_dir)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: is a file", "name a folder for the predictions with {out}")
    make_folder(out)
    writer = _Writer(out)
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

    def __init__(self, out: Path) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self._out = out
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
        mask, overlay = self._out / f"{name}_mask.png", self._out / f"{name}_overlay.jpg"
        with writing(self._out):
            mask.parent.mkdir(parents=True, exist_ok=True)
            prediction.save(mask)
            prediction.overlay().save(overlay, quality=90)
        files = {kind: path.relative_to(self._out).as_posix() for kind, path in (("mask", mask), ("overlay", overlay))}
        self.entries[name] = {**prediction.summary(), "files": files}

    def write_index(self, skipped: list[str]) -> Path:
        """Write predictions.json."""
        images = [self.entries[name] for name in self._file_names if name in self.entries]
        path = self._out / INDEX_FILE
        with writing(self._out):
            path.write_text(json.dumps({"images": images, "skipped": skipped}, indent=2) + "\n", encoding="utf-8")
        return path


def _unused_name(name: str, used: set[str]) -> str:
    unused, number = name, 1
    while unused.lower() in used:  # some file systems do not distinguish a.png from A.png
        number += 1
        unused = f"{name}-{number}"
    used.add(unused.lower())
    return unused
