import json
from pathlib import Path

import pytest

from tests.training.small_run import run, small_data, small_recipe


def test_metrics_are_json_lines(tmp_path: Path) -> None:
    run(tmp_path / "run", small_recipe())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "validation"] == [1, 2, 3]
    assert all(line["step"] <= 12 for line in lines)
    assert len(small_data()[1]) == 8


def test_run_prints_nothing_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "run", small_recipe("training.epochs=1"))
    assert capsys.readouterr() == ("", "")
