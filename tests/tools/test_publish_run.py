from pathlib import Path

import pytest

from tagseg.errors import DataError
from tagseg.reproduction.paper import TABLES
from tagseg.reproduction.tables import paper_table
from tests.reproduction.fake_runs import write_evaluation, write_training
from tools.publish_run import publish


def test_published_runs_have_all_results_and_no_local_path(tmp_path: Path) -> None:
    write_training(tmp_path / "runs", "resnet50")
    write_evaluation(tmp_path / "runs", "resnet50", "tta", 60)
    (tmp_path / "runs" / "resnet50" / "model.safetensors").write_bytes(b"large")
    assert publish(tmp_path / "runs", tmp_path / "results") == ["resnet50"]
    files = {file.name: file.read_text() for file in (tmp_path / "results" / "resnet50").iterdir()}
    assert set(files) == {"config.json", "metrics.jsonl", "tta.json"}
    assert '"train": "b.csv"' in files["config.json"]
    for table in ("table-1", "supp-f"):
        published, original = (paper_table(TABLES[table], tmp_path / name) for name in ("results", "runs"))
        assert published == original


def test_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing: holds no run of the paper's tables"):
        publish(tmp_path / "nothing", tmp_path / "results")
