"""Write benchmark tables into docs/performance.md, and plot how time grows with size.

python -m tools.performance_doc results/performance docs/performance.md
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tagseg._markdown import markdown_table, wrap
from tagseg.benchmarks.report import Report, growth_lines, machine_line, score_cells, table_cells
from tagseg.benchmarks.timing import Growth
from tagseg.errors import DataError
from tools._documents import fill_blocks, run_tool, update_file

_COLUMNS = 3
_MARKERS = "osd^v<>P"


def write_document(results: Path, document: Path) -> None:
    """Fill the document's blocks, and write the growth plot beside it.

    Args:
        results: Folder of the JSON files that `tagseg bench --json` wrote.
        document: The document.
    """
    update_file(document, lambda text: fill(text, results))
    reports = [report for file in sorted(results.glob("*.json")) for report in read_reports(file)]
    plot_growth(reports, document.with_suffix(".png"))


def fill(document: str, results: Path) -> str:
    """Write the tables of a benchmark from RESULTS/FILE.json into each block `<!-- begin FILE BENCHMARK -->`."""

    def tables(block: str) -> str:
        file, benchmark = block.split()
        reports = read_reports(results / f"{file}.json")
        texts = [report_markdown(report) for report in reports if report.benchmark == benchmark]
        return "\n\n".join(texts) or "Not measured yet."

    return fill_blocks(document, tables)


def read_reports(file: Path) -> list[Report]:
    """Read the output of `tagseg bench --json`."""
    if not file.is_file():
        raise DataError(f"{file}: does not exist", "write it with tagseg bench --json")
    return [Report.parse(values) for values in json.loads(file.read_text())]


def report_markdown(report: Report) -> str:
    """Format a report as Markdown."""
    parts = []
    tables = [(table.title, table_cells(table), table.note) for table in report.measurements.tables]
    tables += [(table.title, score_cells(table), table.note) for table in report.measurements.scores]
    for title, (header, *rows), note in tables:
        parts += [f"**{title}**", markdown_table(header, rows)]
        if note:
            parts.append(wrap(note))
    growths = list(growth_lines(report.measurements.growths))
    if growths:
        parts.append("\n".join(f"- {line}" for line in growths))
    parts.append(wrap(machine_line(report)))
    return "\n\n".join(parts)


def plot_growth(reports: Sequence[Report], file: Path) -> None:
    """Plot time against size on logarithmic axes, where a power law is a straight line.

    Args:
        reports: Reports of one or more machines; each benchmark and quantity has a panel, with a line per machine.
        file: The PNG file.
    """
    panels: dict[tuple[str, str], list[tuple[str, Growth]]] = defaultdict(list)
    for report in reports:
        for growth in report.measurements.growths:
            machine = "GPU" if report.machine["device"] == "cuda" else "CPU"
            panels[report.benchmark, growth.along].append((machine, growth))
    rows = -(-len(panels) // _COLUMNS)
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(4.2 * _COLUMNS, 3.1 * rows), layout="constrained")
        for index, ((benchmark, along), lines) in enumerate(panels.items()):
            axes = figure.add_subplot(rows, _COLUMNS, index + 1)
            for marker, (machine, growth) in zip(_MARKERS, lines, strict=False):
                sizes, seconds = zip(*growth.points, strict=True)
                milliseconds = [1e3 * value for value in seconds]
                label = f"{machine}, {growth.title}: {growth.slope:.2f}"
                axes.loglog(sizes, milliseconds, marker=marker, markersize=4, label=label)
            ticks = _ticks(sorted({size for _, growth in lines for size, _ in growth.points}))
            axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], rotation=30, fontsize=7)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlabel(along)
            axes.set_ylabel("milliseconds")
            axes.set_title(f"tagseg bench {benchmark}", loc="left", fontsize=9, fontweight="bold")
            axes.grid(visible=True, which="major", alpha=0.25)
            axes.margins(y=0.3)  # room for the legend
            axes.legend(fontsize=6.5, frameon=False)
        figure.savefig(file, dpi=110)


def _ticks(sizes: Sequence[float]) -> list[float]:
    """Select sizes whose labels do not overlap on a logarithmic axis."""
    ticks: list[float] = []
    for size in sizes:
        if not ticks or size > 1.3 * ticks[-1]:
            ticks.append(size)
    return ticks


if __name__ == "__main__":
    run_tool(write_document, __doc__, "results", "document")
