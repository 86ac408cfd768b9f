"""Write the paper's tables with our results, and tables about our runs, into docs/results.md or the model card.

python -m tools.results_doc results docs/results.md
"""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from tagseg._markdown import MISSING, markdown_table, wrap
from tagseg.errors import DataError, unknown_name
from tagseg.evaluation.evaluate import PROTOCOLS
from tagseg.reproduction.measurements import read_measurement
from tagseg.reproduction.paper import RUNS, TABLES, find_run
from tagseg.reproduction.tables import paper_table
from tagseg.training.logging import read_metrics
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import CONFIG_FILE, read_config
from tagseg.training_run import MAX_EVALUATED
from tools._documents import fill_blocks, run_tool, update_file

_MASK_METRICS = tuple(f"mIoU {protocol}" for protocol in PROTOCOLS)
_MAX_EPOCHS = 6  # of a run with more validations, every fifth epoch and the last are listed

Metrics = list[dict[str, Any]]  # lines of metrics.jsonl


def write_document(results: Path, document: Path) -> None:
    """Fill the document's blocks.

    Args:
        results: Folder with a folder for each run.
        document: The document.
    """
    update_file(document, lambda text: fill(text, results))


def fill(document: str, results: Path) -> str:
    """Write a table into each block `<!-- begin TABLE -->`; `costs` and `epochs` are tables about all runs."""
    if not results.is_dir() or not any(results.iterdir()):
        raise DataError(f"{results}: holds no results", "name the folder with a folder for each run")
    run_tables = {"costs": costs_table, "epochs": epochs_table}

    def generate(name: str) -> str:
        if name in run_tables:
            runs = [run for run in RUNS if (results / run).is_dir()]
            on_gpus = [run for run in runs if find_run(run).recipe != "laptop"]
            return run_tables[name](results, on_gpus if name == "costs" else runs)
        if name not in TABLES:
            raise unknown_name("table", name, [*TABLES, *run_tables])
        return paper_table(TABLES[name], results)

    return fill_blocks(document, generate)


def epochs_table(results: Path, runs: Iterable[str]) -> str:
    """Tabulate validation loss and mean IoU over the epochs of each run.

    Args:
        results: Folder with a folder for each run.
        runs: Names of the runs, in the table's order.
    """
    rows, validations_by_run = [], []
    for run in runs:
        metrics = read_metrics(results / run)
        # Runs on few images hold out images without masks, so that nothing but the loss is known.
        validations = [line for line in metrics if line["kind"] == "validation" and line.keys() >= set(_MASK_METRICS)]
        listed_validations = [
            line
            for line in validations
            if len(validations) <= _MAX_EPOCHS or line["epoch"] % 5 == 0 or line is validations[-1]
        ]
        rows.append(
            [
                run,
                ", ".join(str(line["epoch"]) for line in listed_validations) or MISSING,
                ", ".join(f"{line['loss']:.3f}" for line in listed_validations) or MISSING,
                *(", ".join(f"{line[name]:.1f}" for line in listed_validations) or MISSING for name in _MASK_METRICS),
            ]
        )
        if validations:
            recipe = Recipe.parse(read_config(results / run)["recipe"])
            validations_by_run.append(_mask_validations(metrics, recipe))
    candidates = [lines for lines in validations_by_run if lines]
    best = [sum(max(lines, key=lambda line: line[name]) is lines[-1] for lines in candidates) for name in _MASK_METRICS]
    lowest = sum(min(lines, key=lambda line: line["loss"]) is lines[-1] for lines in candidates)
    note = (
        f"Mean IoU of the first {MAX_EVALUATED} val images, single-scale, no CRF. A run that was validated after every "
        f"epoch has every fifth epoch listed. Of {len(candidates)} runs, the last epoch has the best mean IoU in "
        f"{best[0]} under {PROTOCOLS[0]} and in {best[1]} under {PROTOCOLS[1]}, and the lowest validation loss in "
        f"{lowest}, counting the epochs that train masks."
    )
    table = markdown_table(("run", "epochs", "validation loss", *_MASK_METRICS), rows)
    return f"{table}\n\n{wrap(note)}"


def costs_table(results: Path, runs: Iterable[str]) -> str:
    """Tabulate time, speed and memory of runs on GPUs.

    Args:
        results: Folder with a folder for each run.
        runs: Names of the runs, in the table's order.
    """
    headings = (
        "run", "epochs", "model of epoch", "minutes", "images/s, classification", "images/s, with masks", "GPU, GiB",
        "evaluation, images/s", "with CRF", "device",
    )  # fmt: skip
    rows = [[run, *_training_costs(results / run), *_evaluation_speeds(results / run)] for run in runs]
    note = (
        "Minutes include validation between epochs. Training speeds are medians over the log; memory is the most that "
        "torch reserved. Evaluation: val images with TTA, from files to metrics."
    )
    return f"{markdown_table(headings, rows)}\n\n{wrap(note)}"


def _training_costs(run: Path) -> list[str]:
    metrics = read_metrics(run)
    steps = [line for line in metrics if line["kind"] == "train"]
    if not steps or not (run / CONFIG_FILE).is_file():
        return [MISSING] * 6
    recipe = Recipe.parse(read_config(run)["recipe"])
    classification_epochs = _classification_epochs(recipe)
    memory = [line["gpu_gib"] for line in steps if "gpu_gib" in line]
    return [
        f"{steps[-1]['epoch']} of {recipe.training.epochs}",
        _model_epoch(_mask_validations(metrics, recipe), recipe.validation.checkpoint),
        f"{_training_seconds(metrics, recipe.training.batch_size) / 60:.1f}",
        _median_speed(line["images_per_second"] for line in steps if line["epoch"] <= classification_epochs),
        _median_speed(line["images_per_second"] for line in steps if line["epoch"] > classification_epochs),
        f"{max(memory):.1f}" if memory else MISSING,
    ]


def _classification_epochs(recipe: Recipe) -> int:
    """Return the number of first epochs that train no masks."""
    epochs = {"cam": recipe.training.epochs, "supervised": 0}
    return epochs.get(recipe.model.method, recipe.training.classification_epochs)


def _mask_validations(metrics: Metrics, recipe: Recipe) -> Metrics:
    """Select the validations that are candidates for the model: of epochs that train masks, and all of CAM's."""
    first = 0 if recipe.model.method == "cam" else _classification_epochs(recipe)
    return [line for line in metrics if line["kind"] == "validation" and line["epoch"] > first]


def _model_epoch(validations: Metrics, checkpoint: str) -> str:
    if not validations:
        return MISSING
    line = validations[-1] if checkpoint == "last" else min(validations, key=lambda line: line["loss"])
    return str(line["epoch"])


def _training_seconds(metrics: Metrics, batch_size: int) -> float:
    """Sum the time of all steps: a line's speed holds for the steps since the line before it."""
    seconds, previous_step = 0.0, 0
    for line in metrics:
        if line["kind"] == "train":
            seconds += (line["step"] - previous_step) * batch_size / line["images_per_second"]
        previous_step = line["step"]
    return seconds


def _median_speed(speeds: Iterable[float]) -> str:
    values = list(speeds)
    return f"{median(values):,.0f}" if values else MISSING


def _evaluation_speeds(run: Path) -> list[str]:
    evaluations = [read_measurement(run, name) for name in ("tta", "tta-crf")]
    speeds = [f"{evaluation.images / evaluation.seconds:,.1f}" if evaluation else MISSING for evaluation in evaluations]
    return [*speeds, next((evaluation.device for evaluation in evaluations if evaluation), MISSING)]


if __name__ == "__main__":
    run_tool(write_document, __doc__, "results", "document")
