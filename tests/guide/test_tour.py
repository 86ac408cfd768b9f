import re
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "docs" / "tour.md"


@pytest.mark.slow
def test_code_of_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", TOUR.read_text(), re.MULTILINE | re.DOTALL):
        exec(block, values)
    assert list(values["out"].masks.shape) == [2, 21, 56, 56]  # type: ignore[attr-defined]
    assert (tmp_path / "runs" / "no-gate" / "model.safetensors").is_file()
