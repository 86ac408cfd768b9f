"""Documents with parts that a program writes: whatever stands between two marks is replaced."""

import re
from collections.abc import Callable
from pathlib import Path

_PART = re.compile(r"(<!-- begin (?P<name>[\w -]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_parts(document: str, part: Callable[[str], str]) -> str:
    """The document with `part(NAME)` after each `<!-- begin NAME -->`, up to the next `<!-- end -->`."""
    return _PART.sub(lambda match: f"{match[1]}\n{part(match['name'])}\n\n{match[3]}", document)


def fill_file(file: Path, filled: Callable[[str], str]) -> None:
    """Replace a document by what is made of it."""
    if not file.is_file():
        raise ValueError(f"{file}: does not exist; name a document with marks such as <!-- begin NAME --> <!-- end -->")
    file.write_text(filled(file.read_text()))
