"""The paper's tables as Markdown with our results; one that has not been measured is a dash."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from tagseg._markdown import MISSING, markdown_table, wrap
from tagseg.errors import DataError
from tagseg.evaluation import Evaluation
from tagseg.evaluation.metrics import mean
from tagseg.reproduction.measurements import MEASUREMENTS, read_measurement
from tagseg.reproduction.paper import Cell, PaperTable, Result


def paper_table(table: PaperTable, results: Path) -> str:
    """Format a table of the paper with the results of our runs.

    Args:
        table: The table.
        results: Folder with a folder for each run.
    """
    read = cache(lambda run, name: read_measurement(results / run, name))
    image_counts = {"val": set[int](), "train": set[int]()}

    def text(cell: Cell) -> str:
        if not isinstance(cell, Result):
            return cell if isinstance(cell, str) else MISSING if cell is None else f"{cell:.1f}"
        evaluations = [evaluation for run in cell.runs if (evaluation := read(run, cell.measurement)) is not None]
        image_counts[MEASUREMENTS[cell.measurement].images].update(evaluation.images for evaluation in evaluations)
        values = [_percent(evaluation, table.protocol, cell) for evaluation in evaluations]
        return mean_and_std([value for value in values if not np.isnan(value)], seeds=len(cell.runs))

    rows = []
    for row in table.rows:
        texts = [text(cell) for cell in row]
        figures = [shown for cell, shown in zip(row, texts, strict=True) if not isinstance(cell, str)]
        if not figures or set(figures) != {MISSING}:  # a row without any figure waits for its run
            rows.append(texts)
    notes = [table.note]
    if table.protocol:
        notes.insert(0, f"Protocol `{table.protocol}`.")
    for images, counts in image_counts.items():
        if len(counts) > 1:
            raise DataError(
                f"{results}: some runs were evaluated on {min(counts)} {images} images and others on {max(counts)}",
                "evaluate all runs on the same images",
            )
        notes += [f"Our runs: {count:,} {images} images." for count in counts]
    return f"{markdown_table(table.headings, rows)}\n\n{wrap(' '.join(notes))}"


def mean_and_std(values: Sequence[float], *, seeds: int) -> str:
    """Format the mean of several seeds with the sample standard deviation.

    Args:
        values: One value for each seed that was measured.
        seeds: Number of seeds of the row; where fewer were measured, the text says how many.
    """
    if not values:
        return MISSING
    text = f"{fmean(values):.1f}" if len(values) == 1 else f"{fmean(values):.1f} ± {stdev(values):.1f}"
    if len(values) == seeds:
        return text
    return f"{text} ({len(values)} {'seed' if len(values) == 1 else 'seeds'})"


def _percent(evaluation: Evaluation, protocol: str, result: Result) -> float:
    values = getattr(evaluation.confusion[protocol], result.metric)
    return 100 * float(mean(values) if result.class_index is None else values[result.class_index])
