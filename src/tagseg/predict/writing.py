"""Predictions as files."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from tagseg.predict.ahead import map_ahead
from tagseg.predict.prediction import Prediction
from tagseg.predict.stream import PredictionStream

INDEX_FILE = "predictions.json"


def write_predictions(predictions: Iterable[Prediction], out_dir: str | Path, *, progress: bool = False) -> Path:
    """Write each image's mask (NAME_mask.png) and overlay (NAME_overlay.jpg), and one predictions.json for all.

    The names differ from the images' own, so nothing is lost where the images lie in that folder. Two images of
    one name get NAME and NAME-2. What a stream left out is listed under `skipped`. After an error the
    index names what was written before it.

    Args:
        predictions: they are written as they come.
        out_dir: made if it does not exist.
        progress: show a bar.

    Returns:
        The path of predictions.json.
    """
    out = Path(out_dir)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file; name a folder for the predictions")
    names: list[str] = []
    written: dict[str, dict[str, Any]] = {}  # what predictions.json says under each name

    def write(named: tuple[str, Prediction]) -> None:
        written[named[0]] = _write(*named, out)

    def write_index() -> Path:
        out.mkdir(parents=True, exist_ok=True)
        images = [written[name] for name in names if name in written]
        skipped = predictions.bad if isinstance(predictions, PredictionStream) else []
        (out / INDEX_FILE).write_text(json.dumps({"images": images, "skipped": skipped}, indent=2) + "\n")
        return out / INDEX_FILE

    total = len(predictions) if isinstance(predictions, PredictionStream) else None
    shown = track(predictions, "predicting", total, console=Console(stderr=True), disable=not progress)
    try:
        for _ in map_ahead(write, _named(shown, names)):
            pass
    except BaseException:
        if written:  # what is done before an image that cannot be read, or before Ctrl-C, is not lost
            write_index()
        raise
    return write_index()


def _named(predictions: Iterable[Prediction], names: list[str]) -> Iterator[tuple[str, Prediction]]:
    """Each prediction with a free name for its files, which is noted."""
    taken: set[str] = set()
    for prediction in predictions:
        names.append(_free_name(prediction.name, taken))
        yield names[-1], prediction


def _write(name: str, prediction: Prediction, out: Path) -> dict[str, Any]:
    """Write one image's files; returns its entry in predictions.json."""
    mask, overlay = out / f"{name}_mask.png", out / f"{name}_overlay.jpg"
    mask.parent.mkdir(parents=True, exist_ok=True)
    prediction.save(mask)
    prediction.overlay().save(overlay, quality=90)
    files = {kind: path.relative_to(out).as_posix() for kind, path in (("mask", mask), ("overlay", overlay))}
    return {**prediction.summary(), "files": files}


def _free_name(name: str, taken: set[str]) -> str:
    free, number = name, 1
    while free.lower() in taken:  # some disks do not tell a.png from A.png
        number += 1
        free = f"{name}-{number}"
    taken.add(free.lower())
    return free
