"""Benchmark reports as JSON and as printed tables."""

import json
from dataclasses import asdict

import pytest
import torch
from rich.console import Console

from tagseg.benchmarks.report import Report, duration, measure, show, table_cells
from tagseg.benchmarks.timing import Growth, Measurements, Row, ScoreTable, Table

MEASUREMENTS = Measurements(
    (Table("a job", (Row("slow", 0.5, 2**20), Row("fast", 0.001, 2**10, images=None)), note="on one thread"),),
    (Growth("a job", "pixels", ((10.0, 0.1), (100.0, 1.0)), 1.0),),
    (ScoreTable("mIoU", ("predicted-tags", "true-tags"), (("1x", (50.04, 53.0)),)),),
)


@pytest.fixture
def report() -> Report:
    return measure("job", lambda _: MEASUREMENTS, torch.device("cpu"))


def test_json_round_trip(report: Report) -> None:
    assert Report.parse(json.loads(json.dumps(asdict(report)))) == report


def test_json_round_trip_of_rounds() -> None:
    table = Table("a job", (Row("slow", 2.0, None, rounds=(3.0, 1.0, 2.0)), Row("unknown", 1.0, None)))
    report = measure("job", lambda _: Measurements((table,)), torch.device("cpu"))
    assert Report.parse(json.loads(json.dumps(asdict(report)))) == report


def test_report_has_machine_and_versions(report: Report) -> None:
    assert report.machine["processor"]
    assert {"python", "torch", "tagseg"} <= set(report.versions)


def test_printed_tables_have_speedup_memory_and_growth(report: Report) -> None:
    console = Console(record=True, width=120)
    show(report, console)
    text = console.export_text()
    assert "500.00" in text
    assert "1 KiB" in text
    assert "power 1.00" in text
    assert "50.0" in text
    assert report.versions["torch"] in text


def test_table_cells_show_the_range_of_the_rounds() -> None:
    table = Table("a job", (Row("slow", 2.0, 2**20, rounds=(3.0, 1.0, 2.0)), Row("unknown", 1.0, None)))
    assert list(table_cells(table)) == [
        ["variant", "time", "min to max", "speedup", "memory"],
        ["slow", "2 s", "1 s to 3 s", "1.00", "1 MiB"],
        ["unknown", "1 s", "-", "2.00", "-"],
    ]


def test_table_cells_leave_out_columns_without_values() -> None:
    table = Table("a job", (Row("one", 2.0, None, images=4), Row("other", 1.0, None, images=4)))
    assert list(table_cells(table)) == [
        ["variant", "time", "images/s", "speedup"],
        ["one", "2 s", "2.0", "1.00"],
        ["other", "1 s", "4.0", "2.00"],
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.01234, "12.3 ms"), (2e-6, "2 µs"), (3e-8, "3.0e-08 s")]
)
def test_durations_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
