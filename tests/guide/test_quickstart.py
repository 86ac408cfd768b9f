import json
from pathlib import Path

import pytest

from tests.guide.commands import commands, run_command
from tests.training.small_run import SETTINGS


@pytest.mark.slow
def test_commands_lead_from_photos_to_masks(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (reader_folder / "masks").rename(reader_folder / "ground truth")  # the page writes masks/
    short = [f"--set={setting}" for setting in (*SETTINGS, "training.epochs=2")]
    for command in commands("quickstart"):
        more: tuple[str, ...] = ()
        if command.startswith("tagseg train"):
            command, more = command.replace("--recipe laptop -o runs/photos", "-o runs/quick"), (*short, "--workers=0")
        elif "first-look" in command:
            more = ("--size=96",)  # that of the default model takes a second an image
        run_command(command, monkeypatch, *more)
    index = json.loads((reader_folder / "masks" / "predictions.json").read_text())
    assert len(index["images"]) == 40
    assert index["protocol"] == "true-tags"
    assert len(list((reader_folder / "first-look").glob("*_overlay.jpg"))) == 40
    assert (reader_folder / "runs" / "photos" / "report.html").is_file()
