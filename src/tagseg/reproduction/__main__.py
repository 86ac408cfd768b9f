"""Write our figures into a document, beside the paper's.

python -m tagseg.reproduction results docs/results.md
"""

import sys
from pathlib import Path

from tagseg._marks import fill_file
from tagseg.reproduction.document import filled


def main() -> None:
    """Fill in a document."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tagseg.reproduction RESULTS DOCUMENT")
    results, document = map(Path, sys.argv[1:])
    try:
        fill_file(document, lambda text: filled(text, results))
    except (ValueError, OSError) as error:
        sys.exit(f"tagseg: {error}")


if __name__ == "__main__":
    main()
