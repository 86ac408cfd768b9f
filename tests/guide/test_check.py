"""The page check.md: its commands, and its table of what is found."""

import re
from pathlib import Path

import pytest

from tagseg.data import findings
from tests.guide.commands import GUIDE, commands, run_command


def test_commands(reader_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (reader_folder / "photos").rename(reader_folder / "all")
    rows = (reader_folder / "photos.csv").read_text().splitlines()
    for name, part in (("photos", rows[1:36]), ("val", rows[36:])):
        (reader_folder / name).mkdir()
        (reader_folder / f"{name}.csv").write_text("\n".join([rows[0], *part]) + "\n")
        for row in part:
            image = row.partition(",")[0]
            (reader_folder / "all" / image).rename(reader_folder / name / image)
    for command in commands("check"):
        run_command(command, monkeypatch)
        printed = capsys.readouterr().out
        assert "fit for training, with " in printed or '"verdict": "fit with warnings"' in printed


def test_table_has_every_kind_of_finding() -> None:
    source = Path(findings.__file__).read_text()
    kinds = set(re.findall(r'_(?:problem|warning|note)\(\s*"([a-z-]+)"', source))
    table = (GUIDE / "check.md").read_text().partition("## What is found")[2].partition("\n\nThe numbers")[0]
    assert kinds == {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([a-z-]+)`", row)
    }
