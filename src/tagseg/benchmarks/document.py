"""Write measured figures into a document: whatever stands between its marks is replaced.

python -m tagseg.benchmarks.document results/performance docs/performance.md
"""

import json
import re
import sys
from pathlib import Path

from tagseg.benchmarks.report import Report
from tagseg.benchmarks.show import markdown

_MARKS = re.compile(r"(<!-- begin (?P<file>[\w-]+) (?P<what>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read_reports(file: Path) -> list[Report]:
    """What `tagseg bench --json` wrote."""
    return [Report.parse(values) for values in json.loads(file.read_text())]


def filled(document: str, results: Path) -> str:
    """The document with a benchmark's tables out of RESULTS/FILE.json after each `<!-- begin FILE BENCHMARK -->`."""

    def tables(match: re.Match[str]) -> str:
        reports = read_reports(results / f"{match['file']}.json")
        text = "\n\n".join(markdown(report) for report in reports if report.what == match["what"])
        return f"{match[1]}\n{text}\n\n{match[4]}"

    return _MARKS.sub(tables, document)


def main(results: Path, document: Path) -> None:
    """Fill in a document, and draw how costs grow beside it."""
    from tagseg.benchmarks.plot import plot_growth  # needs matplotlib, which the tables do not

    document.write_text(filled(document.read_text(), results))
    reports = [report for file in sorted(results.glob("*.json")) for report in read_reports(file)]
    plot_growth(reports, document.with_suffix(".png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
