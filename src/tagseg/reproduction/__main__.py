"""Write our figures into a document, beside the paper's.

python -m tagseg.reproduction results docs/results.md
"""

import sys
from pathlib import Path

from tagseg.reproduction.document import filled


def main() -> None:
    """Fill in a document."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tagseg.reproduction RESULTS DOCUMENT")
    document = Path(sys.argv[2])
    try:
        document.write_text(filled(document.read_text(), Path(sys.argv[1])))
    except (ValueError, OSError) as error:
        sys.exit(f"tagseg: {error}")


if __name__ == "__main__":
    main()
