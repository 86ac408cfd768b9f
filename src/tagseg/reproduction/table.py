"""A table of the paper with places for our figures."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A number that is measured: where it comes from.

    Attributes:
        run: the run's folder, which has its recipe's name.
        file: which measurement of the run.
        measure: `iou`, `precision` or `recall`, in per cent.
        label: of this class alone, 0 being the background; the mean over all classes if None.
    """

    run: str
    file: str
    measure: str = "iou"
    label: int | None = None


Cell = str | float | Figure | None  # words, the paper's figure, ours, or nothing to compare


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, with our figures beside its own.

    Attributes:
        title: what it shows.
        protocol: `predicted-tags` or `true-tags`, one for the whole table; empty where nothing is measured.
        note: what the figures hold for.
        headings: the names of the columns.
        rows: as long as the headings.
    """

    title: str
    protocol: str
    note: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def figures(self) -> Iterator[Figure]:
        """The figures that have to be measured for this table."""
        return (cell for row in self.rows for cell in row if isinstance(cell, Figure))
