"""What is measured can be read by people and by programs, and the docs show what was measured."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from rich.console import Console

import tagseg
from tagseg._marks import fill_file
from tagseg.benchmarks.document import filled, read_reports
from tagseg.benchmarks.plot import plot_growth
from tagseg.benchmarks.report import Report, measure
from tagseg.benchmarks.show import duration, markdown, show
from tagseg.benchmarks.timing import Findings, Growth, Row, Table

ROOT = Path(__file__).parents[2]
FINDINGS = Findings(
    (Table("a job", (Row("slow", 0.5, 2**20), Row("fast", 0.001, 2**10, images=None)), note="on one thread"),),
    (Growth("a job", "pixels", ((10.0, 0.1), (100.0, 1.0)), 1.0),),
)


@pytest.fixture
def report() -> Report:
    return measure("job", lambda _: FINDINGS, torch.device("cpu"))


def test_json_gives_the_same_report(report: Report) -> None:
    assert Report.parse(json.loads(json.dumps(asdict(report)))) == report


def test_says_what_the_figures_hold_for(report: Report) -> None:
    assert report.machine["processor"]
    assert {"python", "torch", "tagseg"} <= set(report.versions)
    assert report.versions["torch"] in markdown(report)


def test_tables_have_ratio_and_memory(report: Report) -> None:
    assert "| fast | 1 ms | 500.00 | 1 KiB |" in markdown(report)
    assert "power 1.00" in markdown(report)
    console = Console(record=True, width=120)
    show(report, console)
    assert "500.00" in console.export_text()


def test_tables_show_how_far_rounds_differ() -> None:
    table = Table("a job", (Row("slow", 2.0, None, rounds=(3.0, 1.0, 2.0)), Row("unknown", 1.0, None)))
    rounds = measure("job", lambda _: Findings((table,)), torch.device("cpu"))
    assert "| slow | 2 s | 1 s to 3 s | 1.00 | - |\n| unknown | 1 s | - | 2.00 | - |" in markdown(rounds)
    assert Report.parse(json.loads(json.dumps(asdict(rounds)))) == rounds


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.01234, "12.3 ms"), (2e-6, "2 µs"), (3e-8, "3.0e-08 s")]
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_document_is_filled_between_its_marks(report: Report, tmp_path: Path) -> None:
    (tmp_path / "here.json").write_text(json.dumps([asdict(report)]))
    text = "before\n<!-- begin here job -->\nold\n<!-- end -->\nafter\n"
    new = filled(text, tmp_path)
    assert "old" not in new
    assert new.startswith("before\n")
    assert new.endswith("<!-- end -->\nafter\n")
    assert markdown(report) in new
    assert filled(new, tmp_path) == new


def test_growth_is_drawn(report: Report, tmp_path: Path) -> None:
    plot_growth([report], tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_the_docs_show_what_was_measured() -> None:
    document, results = ROOT / "docs" / "performance.md", ROOT / "results" / "performance"
    assert filled(document.read_text(), results) == document.read_text()
    whats = {report.what for file in results.glob("*.json") for report in read_reports(file)}
    assert whats == {"pamr", "crf", "train", "predict", "evaluate"}


def test_an_unknown_benchmark_is_named() -> None:
    with pytest.raises(ValueError, match="unknown benchmark 'speed'; known: crf, evaluate, pamr, predict, train"):
        tagseg.bench(["speed"])


def test_figures_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cpu.json: does not exist; name a folder where tagseg bench --json"):
        filled("<!-- begin cpu pamr -->\n<!-- end -->\n", tmp_path)
    with pytest.raises(ValueError, match="nowhere.md: does not exist; name a document with marks"):
        fill_file(tmp_path / "nowhere.md", lambda text: text)
