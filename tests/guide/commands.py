"""Run the commands of the user guide: every line of a program in the fenced `sh` blocks of a page, in order."""

import re
import shlex
from pathlib import Path

import pytest

from tagseg.cli import main

GUIDE = Path(__file__).parents[2] / "docs" / "guide"


def commands(page: str, program: str = "tagseg") -> list[str]:
    """Commands of a page's `sh` blocks, without comments and with continued lines joined.

    Args:
        page: Name of the page, without its suffix.
        program: Program whose commands to find.
    """
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.startswith(f"{program} ")]


def run_command(command: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """Run a command in this process; fail if it does not end well.

    Args:
        command: The command as a user types it.
        monkeypatch: Replaces the arguments of the process.
        more: Further options, such as settings that make a training short.
    """
    monkeypatch.setattr("sys.argv", [*shlex.split(command), *more])
    try:
        main()
    except SystemExit as ended:
        if ended.code not in (None, 0):
            pytest.fail(f"{command}\nended with {ended.code}")
