"""Report of a benchmark: its measurements with the machine, the date and the versions, and their printed form."""

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import torch
from rich.console import Console
from rich.table import Table as RichTable

from tagseg._device import usable_cores
from tagseg.benchmarks.timing import Growth, Measurements, Row, ScoreTable, Table

_PACKAGES = ("tagseg", "torch", "torchvision", "timm", "triton", "numpy", "pydensecrf2")


@dataclass(frozen=True)
class Report:
    """Measurements of a benchmark and the machine that they hold for.

    Attributes:
        benchmark: Name of the benchmark.
        measurements: Tables and growth curves.
        machine: Processor, cores, memory, GPU.
        date: Date in the form 2026-01-31.
        versions: Versions of Python and of the packages that the figures depend on.
    """

    benchmark: str
    measurements: Measurements
    machine: dict[str, Any]
    date: str
    versions: dict[str, str]

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """Restore a report from the JSON of its `dataclasses.asdict`."""
        parts = values["measurements"]
        tables = tuple(Table(t["title"], tuple(map(_parse_row, t["rows"])), t["note"]) for t in parts["tables"])
        growths = tuple(
            Growth(g["title"], g["along"], tuple((x, y) for x, y in g["points"]), g["slope"]) for g in parts["growths"]
        )
        scores = tuple(
            ScoreTable(s["title"], tuple(s["columns"]), tuple((name, tuple(row)) for name, row in s["rows"]), s["note"])
            for s in parts.get("scores", ())
        )
        return cls(**{**values, "measurements": Measurements(tables, growths, scores)})


def measure(benchmark: str, run: Callable[[torch.device], Measurements], device: torch.device) -> Report:
    """Run a benchmark and record what its figures hold for."""
    date = datetime.now(UTC).date().isoformat()
    return Report(benchmark, run(device), describe_machine(device), date, package_versions(_PACKAGES))


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Processor, usable cores, threads of torch, memory, kind of device, and the name of a GPU."""
    machine: dict[str, Any] = {
        "processor": _processor(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "device": device.type,
    }
    if hasattr(os, "sysconf"):  # Windows has none
        machine["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    if device.type == "cuda":
        machine["gpu"] = torch.cuda.get_device_name(device)
    return machine


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of those of the packages that are installed."""
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def show(report: Report, console: Console) -> None:
    """Print a report."""
    for table in report.measurements.tables:
        _print_table(console, table.title, table_cells(table), table.note)
    for scores in report.measurements.scores:
        _print_table(console, scores.title, score_cells(scores), scores.note)
    for line in growth_lines(report.measurements.growths):
        console.print(line, highlight=False)
    console.print(machine_line(report), highlight=False)


def to_json(reports: Sequence[Report]) -> str:
    """Reports as JSON, which `Report.parse` reads."""
    return json.dumps([asdict(report) for report in reports], indent=1)


def table_cells(table: Table) -> Iterator[list[str]]:
    """Yield the table's header, then its rows; columns without a value are left out."""
    has_images = any(row.images for row in table.rows)
    has_rounds = any(row.rounds for row in table.rows)
    has_memory = any(row.extra_bytes for row in table.rows)
    yield [
        "variant",
        "time",
        *(["min to max"] if has_rounds else []),
        *(["images/s"] if has_images else []),
        "speedup",
        *(["memory"] if has_memory else []),
    ]
    for row in table.rows:
        extent = f"{duration(min(row.rounds))} to {duration(max(row.rounds))}" if row.rounds else "-"
        rate = f"{row.images / row.seconds:,.1f}" if row.images else "-"
        yield [
            row.name,
            duration(row.seconds),
            *([extent] if has_rounds else []),
            *([rate] if has_images else []),
            f"{table.speedup(row):.2f}",
            *([_memory(row)] if has_memory else []),
        ]


def score_cells(table: ScoreTable) -> Iterator[list[str]]:
    """Yield the header of a table of scores, then its rows."""
    yield ["variant", *table.columns]
    for name, scores in table.rows:
        yield [name, *(f"{score:.1f}" for score in scores)]


def growth_lines(growths: tuple[Growth, ...]) -> Iterator[str]:
    """Yield one line for each growth curve."""
    for growth in growths:
        (smallest, shortest), (largest, longest) = growth.points[0], growth.points[-1]
        yield (
            f"{growth.title}: time grows with {growth.along} to the power {growth.slope:.2f} "
            f"({duration(shortest)} at {smallest:,.0f}, {duration(longest)} at {largest:,.0f})"
        )


def machine_line(report: Report) -> str:
    """Return the command, the machine, the date and the versions in one line."""
    machine = report.machine
    where = f"{machine.get('gpu') or machine['processor']}, {machine['threads']} threads"
    packages = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    return f"`tagseg bench {report.benchmark}` on {where}, {report.date}; {packages}."


def duration(seconds: float) -> str:
    """Format seconds with three digits and a unit."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.1e} s"


def _print_table(console: Console, title: str, cells: Iterator[list[str]], note: str) -> None:
    table = RichTable(title=title, title_justify="left", caption=note or None, caption_justify="left")
    for index, name in enumerate(next(cells)):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _memory(row: Row) -> str:
    if row.extra_bytes is None:
        return "-"
    return f"{row.extra_bytes / 2**20:,.0f} MiB" if row.extra_bytes >= 2**20 else f"{row.extra_bytes / 2**10:,.0f} KiB"


def _parse_row(values: dict[str, Any]) -> Row:
    return Row(**{**values, "rounds": tuple(values.get("rounds", ()))})


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
