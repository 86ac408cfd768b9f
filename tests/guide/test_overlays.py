import json
from pathlib import Path

import pytest
from PIL import Image

from tests.guide.commands import commands, run_command


def test_overlays_and_confidence_are_what_the_page_says(
    reader_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = commands("overlays")
    run_command(first, monkeypatch)
    index = json.loads((reader_folder / "predictions" / "predictions.json").read_text())
    assert f"Least certain, to look at first: {', '.join(index['least_certain'][:5])}" in capsys.readouterr().out
    uncertainties = {image["name"]: image["uncertainty"] for image in index["images"]}
    assert uncertainties[index["least_certain"][0]] == max(uncertainties.values())
    image = index["images"][0]
    assert {"uncertainty", "confidence", "nearest_threshold"} <= set(image)
    for kind in ("mask", "overlay", "confidence"):
        with Image.open(reader_folder / "predictions" / image["files"][kind]) as file:
            assert file.size == (image["size"]["width"], image["size"]["height"])
    assert (reader_folder / "predictions" / "legend.png").is_file()
    for command in others:
        run_command(command, monkeypatch)
    assert (reader_folder / "light" / "legend.png").is_file()
    with Image.open(reader_folder / "named" / image["files"]["overlay"]) as file:
        assert file.width > image["size"]["width"]
    assert {path.suffix for path in (reader_folder / "masks").iterdir()} == {".png", ".json"}
    assert not (reader_folder / "masks" / "legend.png").exists()
