import sys
from pathlib import Path

import pytest

from tagseg.errors import DataError
from tools._documents import fill_blocks, run_tool, update_file

DOCUMENT = "before\n<!-- begin a block -->\nold\n<!-- end -->\nbetween\n<!-- begin b -->\n<!-- end -->\nafter\n"


def test_only_blocks_are_replaced() -> None:
    document = fill_blocks(DOCUMENT, str.upper)
    first = "<!-- begin a block -->\n\nA BLOCK\n\n<!-- end -->"
    second = "<!-- begin b -->\n\nB\n\n<!-- end -->"
    assert document == f"before\n{first}\nbetween\n{second}\nafter\n"
    assert fill_blocks(document, str.upper) == document


def test_missing_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere.md: does not exist; name a document with blocks"):
        update_file(tmp_path / "nowhere.md", lambda text: text)


def test_tool_errors_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise DataError(f"{path}: is wrong", "name another")

    monkeypatch.setattr(sys, "argv", ["tool", "some-path"])
    with pytest.raises(SystemExit, match="^tagseg: some-path: is wrong; name another$"):
        run_tool(fail, "A tool.", "path")
