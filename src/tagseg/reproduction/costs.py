"""Time, speed and memory of runs, out of their journals and evaluations."""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from tagseg.reproduction.epochs import that_may_be_kept
from tagseg.reproduction.markdown import MISSING, as_markdown, wrapped
from tagseg.reproduction.measurements import read_measurement
from tagseg.training.journal import read_journal
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import CONFIG, read_config

_HEADINGS = (
    "run",
    "epochs",
    "model of epoch",
    "sessions",
    "minutes",
    "images/s, tags alone",
    "images/s, masks too",
    "GPU, GiB",
    "measured at images/s",
    "with CRF",
    "on",
)
_NOTE = (
    "Training: minutes of all sessions with the validations between epochs; a session is a start or a going on after "
    "an interruption; speeds are medians; memory is the most that torch reserved. Measured: val images, scales and "
    "flips, from files to figures."
)


def costs_markdown(results: Path, runs: Iterable[str]) -> str:
    """What each run cost.

    Args:
        results: the folder of the runs' folders.
        runs: the runs, in the table's order.
    """
    rows = [[run, *_training(results / run), *_measuring(results / run)] for run in runs]
    return f"{as_markdown(_HEADINGS, rows)}\n\n{wrapped(_NOTE)}"


def _training(run: Path) -> list[str]:
    journal = read_journal(run)
    steps = [line for line in journal if line["kind"] == "train"]
    if not steps or not (run / CONFIG).is_file():
        return [MISSING] * 7
    recipe = Recipe.parse(read_config(run)["recipe"])
    first = recipe.training.epochs if recipe.model.method == "cam" else recipe.training.classification_epochs
    memory = [line["gpu_gib"] for line in steps if "gpu_gib" in line]
    return [
        f"{steps[-1]['epoch']} of {recipe.training.epochs}",
        _model_epoch(that_may_be_kept(journal, recipe), recipe.validation.checkpoint),
        str(sum(line["kind"] == "session" for line in journal)),
        f"{_seconds(journal, recipe.training.batch_size) / 60:.1f}",
        _speed(line["images_per_second"] for line in steps if line["epoch"] <= first),
        _speed(line["images_per_second"] for line in steps if line["epoch"] > first),
        f"{max(memory):.1f}" if memory else MISSING,
    ]


def _model_epoch(tried: list[dict[str, Any]], keep: str) -> str:
    """The epoch that was kept, of those that may be."""
    if not tried:
        return MISSING
    return str((tried[-1] if keep == "last" else min(tried, key=lambda line: line["loss"]))["epoch"])


def _seconds(journal: list[dict[str, Any]], batch: int) -> float:
    """A line's speed covers the steps since the line before it; where a session begins, it counts anew."""
    seconds, before = 0.0, 0
    for line in journal:
        if line["kind"] == "train":
            seconds += (line["step"] - before) * batch / line["images_per_second"]
        before = line["step"]
    return seconds


def _speed(values: Iterable[float]) -> str:
    found = list(values)
    return f"{median(found):,.0f}" if found else MISSING


def _measuring(run: Path) -> list[str]:
    found = [read_measurement(run, name) for name in ("tta", "tta-crf")]
    speeds = [f"{result.images / result.seconds:,.1f}" if result else MISSING for result in found]
    return [*speeds, next((result.device for result in found if result), MISSING)]
