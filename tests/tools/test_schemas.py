from tools.schemas import schemas


def test_committed_schemas_are_current() -> None:
    for file, text in schemas().items():
        assert file.read_text(encoding="utf-8") == text, "python -m tools.schemas writes it"
