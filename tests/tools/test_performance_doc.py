import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from tagseg.benchmarks.report import Report, measure
from tagseg.benchmarks.timing import Growth, Measurements, Row, ScoreTable, Table
from tagseg.errors import DataError
from tools.performance_doc import fill, plot_growth, read_reports, report_markdown

ROOT = Path(__file__).parents[2]
MEASUREMENTS = Measurements(
    (Table("a job", (Row("slow", 0.5, 2**20), Row("fast", 0.001, 2**10, images=None)), note="on one thread"),),
    (Growth("a job", "pixels", ((10.0, 0.1), (100.0, 1.0)), 1.0),),
    (ScoreTable("accuracy", ("first", "second"), (("small", (51.26, 49.0)),)),),
)


@pytest.fixture
def report() -> Report:
    return measure("job", lambda _: MEASUREMENTS, torch.device("cpu"))


def test_document_has_the_committed_results() -> None:
    document, results = ROOT / "docs" / "performance.md", ROOT / "results" / "performance"
    assert fill(document.read_text(), results) == document.read_text()
    benchmarks = {report.benchmark for file in results.glob("*.json") for report in read_reports(file)}
    assert benchmarks == {"pamr", "crf", "train", "predict", "evaluate", "sizes", "workers"}


def test_markdown_has_speedup_memory_growth_and_versions(report: Report) -> None:
    markdown = report_markdown(report)
    assert "| fast    |   1 ms |  500.00 |  1 KiB |" in markdown
    assert "power 1.00" in markdown
    assert "| small   |  51.3 |   49.0 |" in markdown
    assert report.versions["torch"] in markdown


def test_block_gets_the_tables_of_its_benchmark(report: Report, tmp_path: Path) -> None:
    (tmp_path / "here.json").write_text(json.dumps([asdict(report)]))
    document = fill("before\n<!-- begin here job -->\nold\n<!-- end -->\nafter\n", tmp_path)
    assert report_markdown(report) in document
    assert "old" not in document


def test_missing_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cpu.json: does not exist; write it with tagseg bench --json"):
        fill("<!-- begin cpu pamr -->\n<!-- end -->\n", tmp_path)


def test_growth_plot_is_written(report: Report, tmp_path: Path) -> None:
    plot_growth([report], tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
