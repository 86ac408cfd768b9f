"""Write measured figures into a document: whatever stands between its marks is replaced.

python -m tagseg.bench.document results/performance docs/performance.md
"""

import re
import sys
from pathlib import Path

from tagseg.bench.report import Report
from tagseg.bench.show import markdown

_MARKS = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)


def filled(document: str, results: Path) -> str:
    """The document with the tables of RESULTS/NAME.json between `<!-- begin NAME -->` and `<!-- end NAME -->`."""

    def tables(match: re.Match[str]) -> str:
        text = markdown(Report.read((results / f"{match['name']}.json").read_text()))
        return f"{match[1]}\n{text}\n\n{match[3]}"

    return _MARKS.sub(tables, document)


def main(results: Path, document: Path) -> None:
    """Fill in a document, and draw how costs grow beside it."""
    from tagseg.bench.plot import plot_growth  # needs matplotlib, which the tables do not

    document.write_text(filled(document.read_text(), results))
    reports = [Report.read(file.read_text()) for file in sorted(results.glob("*.json"))]
    plot_growth(reports, document.with_name("performance.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
