from pathlib import Path

import pytest

from tagseg.errors import DataError
from tagseg.reproduction.paper import TABLES
from tagseg.reproduction.tables import paper_table
from tests.reproduction.fake_runs import write_evaluation


def test_evaluation_with_other_settings_is_refused(tmp_path: Path) -> None:
    write_evaluation(tmp_path, "resnet50-seed-1", "tta", 60)
    folder = tmp_path / "resnet50-seed-1"
    (folder / "tta.json").rename(folder / "tta-crf.json")
    with pytest.raises(DataError, match="tta-crf.json: its settings do not match its name .*CRF off.*remove the file"):
        paper_table(TABLES["table-1"], tmp_path)
    (folder / "tta-crf.json").rename(folder / "last.json")
    with pytest.raises(DataError, match="last.json: its settings do not match its name .*model run.*remove the file"):
        paper_table(TABLES["checkpoint"], tmp_path)
    (folder / "tta-crf.json").write_text('{"model": {}}')
    with pytest.raises(DataError, match="tta-crf.json: is not an evaluation of this version; remove the file"):
        paper_table(TABLES["table-1"], tmp_path)
