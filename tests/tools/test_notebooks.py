from pathlib import Path

import nbformat
import pytest

from tagseg.errors import DataError
from tools.notebooks import execute, run_all

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_what_is_committed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    committed = nbformat.read(path, as_version=4)
    executed = execute(path, tmp_path)
    shown, expected = ([len(cell.get("outputs", ())) for cell in cells] for cells in (executed.cells, committed.cells))
    assert shown == expected


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebook_is_small_and_was_run_in_order(path: Path) -> None:
    assert path.stat().st_size < 500_000
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, 1 + len(cells)))
    texts = [output.get("text", "") for cell in cells for output in cell.outputs]
    assert not any("/tmp" in text or "Warning" in text for text in texts)


def test_folder_without_notebooks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no notebook"):
        run_all(tmp_path)
