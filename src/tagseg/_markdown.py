"""Markdown: tables and paragraphs."""

import re
import textwrap
from collections.abc import Sequence

MISSING = "-"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with columns of equal width, aligned right where all cells are numbers.

    Args:
        headings: Names of the columns.
        rows: Cells as text, as many per row as there are headings.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(3, len(heading), *map(len, cells)) for heading, cells in zip(headings, columns, strict=True)]
    numeric = [all(cell == MISSING or re.match(r"\d", cell) for cell in cells) for cells in columns]
    ruler = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return f"| {' | '.join(aligned)} |"

    return "\n".join(map(line, [headings, ruler, *rows]))


def wrap(text: str) -> str:
    """Break a paragraph into lines of the documents' width."""
    return textwrap.fill(text, 128, break_on_hyphens=False)
