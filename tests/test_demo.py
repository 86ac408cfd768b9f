from functools import partial
from pathlib import Path

import pytest
from PIL import Image

import tagseg
from tagseg import demo
from tests.report.html_page import ParsedPage


def test_demo_trains_and_evaluates_the_method_and_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a few images and epochs."""
    monkeypatch.setenv("COLUMNS", "200")  # keep the lines of the table whole
    monkeypatch.setattr(demo, "train", partial(tagseg.train, epochs=2, classification_epochs=1, workers=0))
    monkeypatch.setattr(demo, "_NUM_TRAIN", 24)
    monkeypatch.setattr(demo, "_NUM_TEST", 4)
    monkeypatch.setattr(demo, "_NUM_SHEET_IMAGES", 2)
    page = demo.run_demo(tmp_path)
    text = " ".join(capsys.readouterr().out.split())
    assert page == tmp_path / "method" / "report.html"
    assert "Evaluation" in ParsedPage(page).text
    for name, folder in (("tagseg", "method"), ("CAM", "cam")):
        evaluation = tagseg.Evaluation.from_json((tmp_path / folder / "evaluation.json").read_text())
        assert evaluation.images == 4
        # Only the baseline's background threshold is tuned, and on the test masks, which the table says.
        assert evaluation.settings.thresholds_from == ("tags" if name == "tagseg" else "masks")
        assert f"{name} │ {100 * evaluation.mean_iou('predicted-tags'):.1f} │" in text
    assert "tuned on these masks" in text
    with Image.open(tmp_path / "images.png") as sheet:
        assert sheet.size[1] == 4 * (160 + 8) + 8  # image, CAM, tagseg and ground truth
