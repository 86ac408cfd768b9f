"""The guide's page about the report."""

from pathlib import Path

import pytest

from tests.guide.commands import GUIDE, commands, run_command
from tests.report.html_page import ParsedPage


def test_commands(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader_folder)
    for command in commands("report"):
        run_command(command, monkeypatch)
    for page in (reader_folder / "runs" / "photos" / "report.html", reader_folder / "tags.html"):
        assert ParsedPage(page).sections[:2] == ["diagnosis", "tags"]


def test_sections_of_the_page_are_described() -> None:
    text = (GUIDE / "report.md").read_text(encoding="utf-8")
    templates = GUIDE.parents[1] / "src" / "tagseg" / "report" / "templates"
    page = (templates / "report.html.j2").read_text(encoding="utf-8")
    for name in ("diagnosis", "tags to check", "images", "curves", "evaluation", "dataset", "configuration"):
        assert f">{name}</a>" in page
        assert name.capitalize() in text
