"""A benchmark's findings as tables: on the screen, and as Markdown for the docs."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table as RichTable

from tagseg.benchmarks.report import Report
from tagseg.benchmarks.timing import Growth, Row, Table


def show(report: Report, console: Console) -> None:
    """Print a report."""
    for table in report.findings.tables:
        shown = RichTable(title=table.title, title_justify="left", caption=table.note or None, caption_justify="left")
        header, *rows = cells(table)
        for index, name in enumerate(header):
            shown.add_column(name, justify="left" if index == 0 else "right")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for line in growth_lines(report.findings.growths):
        console.print(line, highlight=False)
    console.print(machine_line(report), highlight=False)


def markdown(report: Report) -> str:
    """A report as Markdown."""
    parts = []
    for table in report.findings.tables:
        header, *rows = cells(table)
        lines = [f"**{table.title}**", "", _line(header), _line(["---", *["---:"] * (len(header) - 1)])]
        parts.append("\n".join([*lines, *map(_line, rows)]))
        if table.note:
            parts.append(table.note)
    growths = list(growth_lines(report.findings.growths))
    if growths:
        parts.append("\n".join(f"- {line}" for line in growths))
    parts.append(machine_line(report))
    return "\n\n".join(parts)


def cells(table: Table) -> Iterator[list[str]]:
    """The table's header, then its rows."""
    counts = any(row.images for row in table.rows)
    ranges = any(row.rounds for row in table.rows)
    yield [
        "way",
        "time",
        *(["least to most"] if ranges else []),
        *(["images a second"] if counts else []),
        "times faster",
        "memory",
    ]
    for row in table.rows:
        reach = [f"{duration(min(row.rounds))} to {duration(max(row.rounds))}" if row.rounds else "-"] if ranges else []
        rate = [f"{row.images / row.seconds:,.1f}" if row.images else "-"] if counts else []
        yield [row.name, duration(row.seconds), *reach, *rate, f"{table.times_faster(row):.2f}", _memory(row)]


def growth_lines(growths: tuple[Growth, ...]) -> Iterator[str]:
    """One line for each job and what grows."""
    for growth in growths:
        (least, fast), (most, slow) = growth.points[0], growth.points[-1]
        yield (
            f"{growth.title}: time grows with {growth.along} to the power {growth.slope:.2f} "
            f"({duration(fast)} at {least:,.0f}, {duration(slow)} at {most:,.0f})"
        )


def machine_line(report: Report) -> str:
    """Where and when it was measured, and with what."""
    machine = report.machine
    where = f"{machine.get('gpu') or machine['processor']}, {machine['threads']} threads"
    packages = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    return f"`tagseg bench {report.what}` on {where}, {report.date}; {packages}."


def duration(seconds: float) -> str:
    """Seconds for people: three digits and a unit."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.1e} s"


def _memory(row: Row) -> str:
    if row.extra_bytes is None:
        return "-"
    return f"{row.extra_bytes / 2**20:,.0f} MiB" if row.extra_bytes >= 2**20 else f"{row.extra_bytes / 2**10:,.0f} KiB"


def _line(values: list[str]) -> str:
    return "| " + " | ".join(values) + " |"
