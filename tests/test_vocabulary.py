"""Messages, help, docstrings and documents use the words of the field."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Private word -> the field's word.
REPLACED = {
    r"\bpictures?\b": "image",
    r"\bcut-?offs?\b": "threshold",
    r"(?<!ground )(?<!ground-)\btruth\b": "ground truth, target mask",
    r"\bone look\b|\blooks at\b": "single-scale; test-time augmentation",
    r"--quality\b": "--tta",
    r"\bteach(es)?\b": "train on, learn from",
    r"\btags? that choose|tags of \d+ choose\b": "validation images (labels only)",
    r"\bgoes on\b|\bgoing on from\b": "resume",
    r"\ball that is random\b": "random seed",
    r"\bepoch that is kept\b": "last checkpoint, best checkpoint",
    r"\bwhat the network says\b|\bnothing that the model knows\b": "class scores; no known class found",
    r"\bsee `load`, as for\b": "Device, as in `load`.",
    r"\bof one's own\b": "your own",
}
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
TEXTS = [
    *DOCUMENTS,
    ROOT / "src" / "tagseg" / "default" / "README.md",
    ROOT / "src" / "tagseg" / "photos" / "README.md",
    *sorted((ROOT / "src" / "tagseg" / "recipes").rglob("*.toml")),
    *sorted((ROOT / "src" / "tagseg" / "report").rglob("*.j2")),
]


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the string constants of a module with their line numbers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize(("pattern", "replacement"), REPLACED.items())
def test_strings_use_the_words_of_the_field(pattern: str, replacement: str) -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0][:80]}"
        for folder in ("src", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in strings(path)
        if re.search(pattern, text, re.IGNORECASE)
    ]
    assert not matches, f"write {replacement!r}:\n" + "\n".join(matches)


@pytest.mark.parametrize(("pattern", "replacement"), REPLACED.items())
def test_documents_use_the_words_of_the_field(pattern: str, replacement: str) -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line, re.IGNORECASE)
    ]
    assert not matches, f"write {replacement!r}:\n" + "\n".join(matches)
