import pytest

from tagseg import _progress
from tagseg._progress import ProgressBar, track


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_lines_come_after_the_first_seconds_and_then_once_a_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in track(range(100), "Working, image", 100):
        clock[0] += 2
    assert capsys.readouterr().err.splitlines() == [
        "Working, image 3/100, about 0:03:14 left",
        "Working, image 33/100, about 0:02:14 left",
        "Working, image 63/100, about 0:01:14 left",
        "Working, image 93/100, about 0:00:14 left",
    ]


def test_short_and_quiet_jobs_show_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track("ab", "Short", 2)) == ["a", "b"]
    for _ in track(range(10), "Quiet", 10, quiet=True):
        clock[0] += 60
    assert capsys.readouterr() == ("", "")


def test_estimate_is_from_the_recent_items(clock: list[float]) -> None:
    bar = ProgressBar("Working", 1000, quiet=True)
    for done in range(1, 101):
        clock[0] += 100 if done == 1 else 1
        bar.update(done)
    assert bar.seconds_left() == pytest.approx(900)
    bar.leave_out(50)
    clock[0] += 51
    bar.update(101)
    assert bar.seconds_left() == pytest.approx(899)
    bar.forget_pace()
    clock[0] += 7
    bar.update(102)
    assert bar.seconds_left() == pytest.approx(7 * 898)


def test_a_sign_comes_while_one_item_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "SECONDS_TO_FIRST_LINE", 0.01)
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", 0.01)

    def wait_for(text: str) -> None:
        lines = ""
        while text not in lines:
            lines += capsys.readouterr().err

    with ProgressBar("Listing images"):
        wait_for("Listing images, 0:00:00 so far\n")
    with ProgressBar("Predicting, image", 1200) as bar:
        wait_for("Predicting, image 0/1,200, 0:00:00 so far\n")
        bar.update(1)
        bar.note("tiled image 25%")
        wait_for("Predicting, image 1/1,200, tiled image 25%, about ")


def test_more_items_than_expected_are_counted(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("Predicting, image", 1) as bar:
        clock[0] += 60
        bar.update(2)
    assert capsys.readouterr().err == "Predicting, image 2/2, about 0:00:00 left\n"
