"""Tables as Markdown that is also readable as it stands: a figure that has not been measured is a dash."""

import re
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from tagseg.evaluation import Evaluation
from tagseg.evaluation.metrics import mean
from tagseg.reproduction.measurements import MEASUREMENTS, read_measurement
from tagseg.reproduction.table import Cell, Figure, PaperTable

MISSING = "-"


def table_markdown(table: PaperTable, results: Path) -> str:
    """A table of the paper with the figures of the runs under a folder.

    Args:
        table: which.
        results: the folder of the runs' folders.
    """
    read = cache(lambda run, file: read_measurement(results / run, file))
    parts = {"val": set[int](), "train": set[int]()}

    def text(cell: Cell) -> str:
        if isinstance(cell, Figure):
            found = read(cell.run, cell.file)
            if found is None:
                return MISSING
            parts[MEASUREMENTS[cell.file].images].add(found.images)
            return _figure(found, table.protocol, cell)
        return cell if isinstance(cell, str) else MISSING if cell is None else f"{cell:.1f}"

    rows = [[text(cell) for cell in row] for row in table.rows]
    notes = [table.note]
    if table.protocol:
        notes.insert(0, f"Protocol `{table.protocol}`.")
    for part, counts in parts.items():
        if len(counts) > 1:
            raise ValueError(
                f"{results}: some runs were measured on {min(counts)} {part} images and others on {max(counts)}; "
                "measure all on the same"
            )
        notes += [f"Ours were measured on {count:,} {part} images." for count in counts]
    return f"{as_markdown(table.headings, rows)}\n\n{wrapped(' '.join(notes))}"


def as_markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, numbers aligned right and words left."""
    columns = list(zip(*rows, strict=True))
    widths = [max(3, len(heading), *map(len, cells)) for heading, cells in zip(headings, columns, strict=True)]
    right = [all(cell == MISSING or re.fullmatch(r"[\d.,]+", cell) for cell in cells) for cells in columns]
    ruler = ["-" * (width - 1) + (":" if numbers else "-") for width, numbers in zip(widths, right, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if numbers else cell.ljust(width)
            for cell, width, numbers in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(aligned)} |"

    return "\n".join(map(line, [headings, ruler, *rows]))


def wrapped(text: str) -> str:
    """Text in lines as long as the documents'."""
    return textwrap.fill(text, 128, break_on_hyphens=False)


def _figure(found: Evaluation, protocol: str, figure: Figure) -> str:
    values = getattr(found.confusion[protocol], figure.measure)
    value = mean(values) if figure.label is None else values[figure.label]
    return MISSING if np.isnan(value) else f"{100 * value:.1f}"
