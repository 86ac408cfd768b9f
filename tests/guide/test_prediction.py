import json
from pathlib import Path

import pytest

from tests.guide.commands import commands, run_command


def test_commands_of_the_page_work(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in commands("prediction"):
        run_command(command, monkeypatch)
    indexes = {
        folder: json.loads((reader_folder / folder / "predictions.json").read_text())
        for folder in ("predictions", "tagged", "parts")
    }
    assert all(len(index["images"]) == 40 and index["complete"] for index in indexes.values())
    assert indexes["tagged"]["protocol"] == "true-tags"
    assert indexes["parts"]["images"] == indexes["predictions"]["images"]
    assert (reader_folder / "parts" / "predictions-2-of-2.json").is_file()
