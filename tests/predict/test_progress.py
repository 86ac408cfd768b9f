import pytest

from tagseg.predict import progress
from tagseg.predict.predictor import Predictor
from tagseg.predict.progress import PredictionProgress
from tests.predict.conftest import wave_image


def test_first_lines_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with PredictionProgress() as display:
        display.start(1200)
    assert capsys.readouterr().err.splitlines() == ["Listing images ...", "Predicting: 0 of 1,200 images, 0:00:00"]


def test_a_sign_comes_while_one_image_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    with PredictionProgress() as display:
        display.start(4)
        display.advance(1)
        display.tile(3, 12)
        lines = ""
        while "tiled image" not in lines:
            lines += capsys.readouterr().err
    assert "Predicting: 1 of 4 images, 0:00:00, 0:00:00 left; tiled image 25%" in lines


def test_quiet_progress_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with PredictionProgress(quiet=True) as display:
        display.start(0)
        display.advance(1)
    assert capsys.readouterr().err == ""


def test_tiles_are_reported_in_their_order(predictor: Predictor) -> None:
    tiled = Predictor(predictor.engine.network, predictor.settings, device="cpu", max_pixels=2**16, optimize=False)
    stream = tiled.predict_many([wave_image(300, 500)])
    steps: list[tuple[int, int]] = []
    stream.on_tile = lambda done, total: steps.append((done, total))
    list(stream)
    total = len(steps)
    assert total > 2
    assert steps == [(number, total) for number in range(total)]
