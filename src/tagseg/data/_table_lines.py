"""The lines of a table, CSV or JSON: which column is which, and how labels are separated."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tagseg.data.images import SUFFIXES
from tagseg.errors import DataError

_IMAGE_COLUMNS = (
    "file_name",
    "image",
    "filename",
    "file",
    "path",
    "image_path",
    "image_name",
    "image_id",
    "id",
    "name",
)
_LABEL_COLUMNS = ("labels", "label", "tags", "tag", "classes", "class", "categories", "category")
_SEPARATORS = (";", "|", ",", "\t", " ")


@dataclass(frozen=True)
class Line:
    """A line of a table: the image, its labels (one text still to be separated, or a list), its split if it has one."""

    image: str
    labels: str | list[str]
    split: str | None
    where: str


def read_lines(path: Path) -> list[Line]:
    """The lines of a CSV, TSV or JSON lines file."""
    text = read_text(path)
    lines = list(_json_lines(path, text) if path.suffix.lower() in {".jsonl", ".ndjson"} else _csv_lines(path, text))
    if not lines:
        raise DataError(f"{path}: has no rows; write one line per image: image,labels")
    return lines


def read_text(path: Path) -> str:
    """A text file's content, in UTF-8 with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist; name a file that does") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error}); save it as UTF-8") from error


def guess_separator(labels: Iterable[str | list[str]]) -> str:
    """What separates labels: the first of ; | , tab and space that occurs anywhere, for all lines alike.

    All lines together decide, so that "traffic light" stays one label in a table that has "car;dog" elsewhere.
    """
    together = "".join(text for text in labels if isinstance(text, str))
    return next((separator for separator in _SEPARATORS if separator in together), " ")


def split_labels(labels: str | list[str], separator: str) -> frozenset[str]:
    """The labels of one line; those that come as a list are not separated further."""
    parts = labels.split(separator) if isinstance(labels, str) else labels
    return frozenset(part.strip() for part in parts if part.strip())


def _json_lines(path: Path, text: str) -> Iterator[Line]:
    for number, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        where = f"{path}:{number}"
        try:
            entry = json.loads(content)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: is not valid JSON ({error}); write one object per line") from error
        if not isinstance(entry, dict):
            raise DataError(f'{where}: is not a JSON object; write {{"file_name": ..., "labels": [...]}}')
        image = next((entry[key] for key in _IMAGE_COLUMNS if entry.get(key)), None)
        key = next((key for key in _LABEL_COLUMNS if key in entry), None)
        if image is None or key is None:
            lacking = "file_name" if image is None else "labels"
            raise DataError(f"{where}: has no {lacking}; its keys are {', '.join(entry) or 'none'}")
        value = [] if entry[key] is None else entry[key]
        labels = [str(label) for label in value] if isinstance(value, list) else str(value)
        yield Line(str(image), labels, entry.get("split"), where)


def _csv_lines(path: Path, text: str) -> Iterator[Line]:
    reader = csv.reader(io.StringIO(text), delimiter=_delimiter(path, text), skipinitialspace=True)
    try:
        table = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: is not valid CSV ({error}); quote the cell") from error
    image, labels, split, width = 0, 1, None, 2
    if table and _is_header(table[0][1], table[1:]):
        header = [cell.lower() for cell in table.pop(0)[1]]
        image, labels, split = _columns(path, header)
        width = len(header)
    # Labels separated by the delimiter itself, unquoted, run past the last column.
    runs_over = labels == width - 1 and any(len(row) > width for _, row in table)
    for number, row in table:
        where = f"{path}:{number}"
        if len(row) <= image or not row[image]:
            raise DataError(f"{where}: names no image; write the image's file name in column {image + 1}")
        cells = row[labels:] if runs_over else "".join(row[labels : labels + 1])
        yield Line(row[image], cells, None if split is None else "".join(row[split : split + 1]), where)


def _delimiter(path: Path, text: str) -> str:
    """The first of tab, comma and semicolon outside quotes in the first line; by the ending if there is none."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    found = re.search(r"[\t,;]", re.sub(r'"[^"]*"', "", first))
    if found:
        return found.group()
    return "\t" if path.suffix.lower() in {".tsv", ".tab"} else ","


def _is_header(first: Sequence[str], others: Sequence[tuple[int, list[str]]]) -> bool:
    if any(_looks_like_image(cell) for cell in first):
        return False
    names = {cell.lower() for cell in first}
    if names & {*_IMAGE_COLUMNS} and (names & {*_LABEL_COLUMNS} or len(first) == 2):
        return True
    return bool(others) and any(_looks_like_image(cell) for cell in others[0][1])


def _looks_like_image(cell: str) -> bool:
    return PurePosixPath(cell).suffix.lower() in SUFFIXES


def _columns(path: Path, header: list[str]) -> tuple[int, int, int | None]:
    """The positions of image, labels and split: by name, or the other one of two."""
    image = next((header.index(name) for name in _IMAGE_COLUMNS if name in header), None)
    labels = next((header.index(name) for name in _LABEL_COLUMNS if name in header), None)
    if len(header) == 2:
        image = image if image is not None else (1 - labels if labels is not None else 0)
        labels = labels if labels is not None else 1 - image
    if image is None or labels is None or image == labels:
        lacking = "image" if image is None else "labels"
        raise DataError(f"{path}:1: has no column {lacking!r} among {', '.join(header)}; rename the column")
    return image, labels, header.index("split") if "split" in header else None
