"""Runs that the report reads, complete and damaged."""

from pathlib import Path

import pytest

from tagseg.errors import ConfigError, DataError
from tagseg.evaluation import Evaluation
from tagseg.report import write_page
from tests.report.html_page import ParsedPage


def test_evaluation_in_the_folder_is_shown(run: Path, evaluation: Evaluation) -> None:
    evaluation.save(run)
    path = write_page(run, images=None)
    assert path == run / "report.html"
    page = ParsedPage(path)
    assert "Per class, true-tags" in page.text
    assert "No images were given" in page.text
    assert page.images == []


def test_damaged_metrics_are_skipped(run: Path) -> None:
    lines = ["[1]", '{"kind": "train"}', '{"kind": "validation", "step": 0, "epoch": 0, "loss": 1.0}']
    lines.append('{"kind": "validation", "step": 6, "epoch": 2, "loss": "high", "mAP": 50.0}')
    lines.append('{"kind": "validation", "step": 9, "epoch": 3, "mAP": 50.0}')
    (run / "metrics.jsonl").write_text("\n".join(lines))
    text = ParsedPage(write_page(run, images=None)).text
    assert "mean average precision" in text
    assert "Validation loss" not in text


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run folder"):
        write_page(tmp_path / "nothing", images=None)


@pytest.mark.parametrize("text", ["{}", '{"recipe": {}}', '{"recipe": {}, "classes": 3}'])
def test_damaged_configuration_is_refused(run: Path, text: str) -> None:
    (run / "config.json").write_text(text)
    with pytest.raises(ConfigError):
        write_page(run, images=None)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"classes": ["a"], "protocols": {}}'])
def test_damaged_evaluation_is_refused(run: Path, text: str) -> None:
    (run / "evaluation.json").write_text(text)
    with pytest.raises(DataError, match="evaluation.json: not a result of an evaluation"):
        write_page(run, images=None)
