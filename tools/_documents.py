"""Documents with generated blocks, and the command line of the tools."""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from tagseg.errors import DataError, TagsegError

_BLOCK = re.compile(r"(<!-- begin (?P<name>[\w -]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_blocks(document: str, generate: Callable[[str], str]) -> str:
    """Replace the generated blocks of a document.

    Args:
        document: Text with blocks from `<!-- begin NAME -->` to `<!-- end -->`.
        generate: Function from a block's name to its content.
    """
    return _BLOCK.sub(lambda match: f"{match[1]}\n{generate(match['name'])}\n\n{match[3]}", document)


def update_file(file: Path, update: Callable[[str], str]) -> None:
    """Rewrite a document.

    Args:
        file: The document.
        update: Function from the old text to the new text.
    """
    if not file.is_file():
        raise DataError(
            f"{file}: does not exist", "name a document with blocks such as <!-- begin NAME --> <!-- end -->"
        )
    file.write_text(update(file.read_text()))


def run_tool(tool: Callable[..., None], description: str, *arguments: str) -> None:
    """Run a tool with paths from the command line, and print errors that a user can fix as one line.

    Args:
        tool: Function that takes one path for each argument.
        description: Help text.
        arguments: Names of the arguments.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in arguments:
        parser.add_argument(name, type=Path)
    paths = parser.parse_args()
    try:
        tool(*(getattr(paths, name) for name in arguments))
    except (TagsegError, OSError) as error:
        sys.exit(f"tagseg: {error}")
