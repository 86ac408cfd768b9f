"""Write measured figures into a document: whatever stands between its marks is replaced.

python -m tagseg.benchmarks.document results/performance docs/performance.md
"""

import json
import sys
from pathlib import Path

from tagseg._marks import fill_file, fill_parts
from tagseg.benchmarks.report import Report
from tagseg.benchmarks.show import markdown


def read_reports(file: Path) -> list[Report]:
    """What `tagseg bench --json` wrote."""
    if not file.is_file():
        raise ValueError(f"{file}: does not exist; name a folder where tagseg bench --json > {file.name} was run")
    return [Report.parse(values) for values in json.loads(file.read_text())]


def filled(document: str, results: Path) -> str:
    """The document with a benchmark's tables out of RESULTS/FILE.json after each `<!-- begin FILE BENCHMARK -->`."""

    def tables(part: str) -> str:
        file, what = part.split()
        reports = read_reports(results / f"{file}.json")
        return "\n\n".join(markdown(report) for report in reports if report.what == what)

    return fill_parts(document, tables)


def main(results: Path, document: Path) -> None:
    """Fill in a document, and draw how costs grow beside it."""
    from tagseg.benchmarks.plot import plot_growth  # needs matplotlib, which the tables do not

    fill_file(document, lambda text: filled(text, results))
    reports = [report for file in sorted(results.glob("*.json")) for report in read_reports(file)]
    plot_growth(reports, document.with_suffix(".png"))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tagseg.benchmarks.document RESULTS DOCUMENT")
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (ValueError, OSError) as error:
        sys.exit(f"tagseg: {error}")
