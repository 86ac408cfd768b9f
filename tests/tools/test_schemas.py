import pydantic
import pytest

from tools.schemas import schemas


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 14),
    reason="before 2.14 pydantic leaves out that dataclasses have no further fields",
)
def test_committed_schemas_are_current() -> None:
    for file, text in schemas().items():
        assert file.read_text(encoding="utf-8") == text, "python -m tools.schemas writes it"
