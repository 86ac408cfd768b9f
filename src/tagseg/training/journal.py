"""`metrics.jsonl`: one line of numbers for each logged step and each epoch, in order, without repeats."""

import json
import math
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"


class Journal:
    """Appends lines; going on from a step first drops what was written after it."""

    def __init__(self, folder: Path, *, step: int = 0) -> None:
        self.path = folder / FILE
        kept = [line for line in read_journal(folder) if line["step"] <= step] if step else []
        self.path.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def write(self, kind: str, step: int, **values: float | int | str | None) -> None:
        """Add a line; NaN, which JSON does not have, becomes null."""
        clean = {
            key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()
        }
        with self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, "step": step, **clean}) + "\n")


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run; a last line that a crash cut short is left out."""
    path = folder / FILE
    lines: list[dict[str, Any]] = []
    for text in path.read_text().splitlines() if path.is_file() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines
