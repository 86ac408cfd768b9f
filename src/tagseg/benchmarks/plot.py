"""How costs grow, as an image: logarithmic axes, on which a power law is a straight line."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tagseg.benchmarks.report import Report
from tagseg.benchmarks.timing import Growth

_COLUMNS = 3
_MARKERS = "osd^v<>P"


def plot_growth(reports: Sequence[Report], file: Path) -> None:
    """One panel for each benchmark and what grows; machines side by side in it, with the slope in the legend."""
    panels: dict[tuple[str, str], list[tuple[str, Growth]]] = defaultdict(list)
    for report in reports:
        for growth in report.findings.growths:
            where = "GPU" if report.machine["device"] == "cuda" else "CPU"
            panels[report.what, growth.along].append((where, growth))
    rows = -(-len(panels) // _COLUMNS)
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(4.2 * _COLUMNS, 3.1 * rows), layout="constrained")
    for index, ((what, along), lines) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, _COLUMNS, index + 1)
        for marker, (where, growth) in zip(_MARKERS, lines, strict=False):
            sizes, seconds = zip(*growth.points, strict=True)
            milliseconds = [1e3 * value for value in seconds]
            label = f"{where}, {growth.title}: {growth.slope:.2f}"
            axes.loglog(sizes, milliseconds, marker=marker, markersize=4, label=label)
        ticks: list[float] = []
        for size in sorted({size for _, growth in lines for size, _ in growth.points}):
            if not ticks or size > 1.3 * ticks[-1]:  # nearer ones would be written over each other
                ticks.append(size)
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], rotation=30, fontsize=7)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(along)
        axes.set_ylabel("milliseconds")
        axes.set_title(f"tagseg bench {what}", loc="left", fontsize=9, fontweight="bold")
        axes.grid(visible=True, which="major", alpha=0.25)
        axes.margins(y=0.3)  # room for the legend
        axes.legend(fontsize=6.5, frameon=False)
    figure.savefig(file, dpi=110)
