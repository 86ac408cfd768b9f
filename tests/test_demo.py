import re
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

import tagseg
from tagseg import demo
from tagseg.predict.render import overlay_palette
from tests.report.html_page import ParsedPage


@pytest.mark.slow
def test_demo_segments_photos_with_the_default_model(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "photos.png"
    threads = torch.get_num_threads()
    predictions = {prediction.name: prediction for prediction in demo.segment_photos(path)}
    assert torch.get_num_threads() == threads
    assert list(predictions) == ["chelsea", "astronaut", "grace_hopper"]
    for name, label in (("chelsea", "cat"), ("astronaut", "person"), ("grace_hopper", "person")):
        shares = {found["name"]: found["share"] for found in predictions[name].summary()["classes"]}
        assert 0.2 < shares[label] < 0.8  # the subject, which is most but not all of the photo
    with Image.open(path) as sheet:
        colors = {color for _, color in sheet.getcolors(1 << 20) or []}
        assert sheet.size[1] == 2 * (240 + 8) + 8 + 20 + 8  # photos, overlays and the legend
    values = [found["value"] for prediction in predictions.values() for found in prediction.summary()["classes"]]
    assert {tuple(color) for color in overlay_palette(256)[values].tolist()} <= colors  # the classes in the legend


def test_demo_trains_and_evaluates_the_method_and_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a few images and epochs."""
    monkeypatch.setattr(demo, "_PHOTOS", ("chelsea.jpg",))
    monkeypatch.setenv("COLUMNS", "200")  # keep the lines of the table whole
    monkeypatch.setattr(demo, "train", partial(tagseg.train, epochs=2, classification_epochs=1, workers=0))
    monkeypatch.setattr(demo, "_NUM_TRAIN", 24)
    monkeypatch.setattr(demo, "_NUM_TEST", 4)
    monkeypatch.setattr(demo, "_NUM_SHEET_IMAGES", 2)
    page = demo.run_demo(tmp_path)
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"chelsea: [^:]*\bcat\b.* photos: {re.escape(str(tmp_path / 'photos.png'))} Training", text)
    assert (tmp_path / "photos.png").is_file()
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
