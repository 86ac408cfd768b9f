"""Training curves of the report."""

from pathlib import Path

from tagseg.report import write_page
from tests.report.html_page import ParsedPage


def test_pixel_metrics_are_separate(full_page: Path) -> None:
    text = ParsedPage(full_page).text
    assert text.index("mean average precision") < text.index("Pixel metrics") < text.index("Measured on masks")
    assert "never select the model" in text
    assert "classification" not in text[text.index("Pixel metrics") : text.index("Numbers by epoch")]


def test_curves_mark_the_checkpoint_and_the_first_phase(full_page: Path) -> None:
    page = ParsedPage(full_page)
    assert "last checkpoint: epoch 2" in page.text
    assert "The model is the last checkpoint, epoch 2." in page.text
    assert len(page.with_class("phase")) == len(page.with_class("marker")) == len(page.with_class("chart"))


def test_missing_values_leave_gaps(run: Path) -> None:
    lines = ['{"kind": "validation", "step": 3, "epoch": 1, "loss": null, "mAP": null}']
    lines.append('{"kind": "validation", "step": 6, "epoch": 2, "loss": 0.5, "mAP": null}')
    (run / "metrics.jsonl").write_text("\n".join(lines))
    text = ParsedPage(write_page(run, images=None)).text
    assert "Validation loss" in text
    assert "mean average precision" not in text
