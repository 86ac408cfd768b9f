"""Tables of image and labels: CSV, TSV, and JSON lines such as the metadata files of Hugging Face's imagefolder."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tagseg.data.files import FileIndex, FileRef, is_file, read_text
from tagseg.data.images import IMAGE_SUFFIXES
from tagseg.data.records import Record, Records
from tagseg.errors import DataError, unknown_name

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")

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
# Images are not looked for in folders that are known to hold masks.
_MASK_FOLDERS = frozenset({"masks", "segmentationclass", "segmentationclassaug", "segmentationobject"})


def read_table(
    path: Path,
    *,
    images: Sequence[Path] = (),
    split: str | None = None,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    find_images: bool = True,
) -> Records:
    """Read a CSV, TSV or JSON lines file.

    Several rows of one image are merged. Images are looked for in `images`, or else in zips named like the table
    (t.csv: t.zip, t-0.zip, t-1.zip and so on) and in the table's folder.

    Args:
        path: The table.
        images: Folders and zips that hold the images.
        split: Value of the column `split` of the rows to read; None means all rows.
        classes: Class names in their order; None means all labels in alphabetical order.
        separator: Separator of the labels in a row; None means that it is guessed from the whole table.
        find_images: Look for the images; without it records have no file.
    """
    rows = _read_rows(path)
    if split is not None:
        rows = _rows_of_split(rows, path, split)
    if separator is None:
        separator = guess_separator(row.labels for row in rows)
    folders = (images or default_image_paths(path)) if find_images else ()
    indexes = [FileIndex(folder, skip=_MASK_FOLDERS) for folder in folders]
    records = [
        Record(row.image, split_labels(row.labels, separator), _find_image(row, indexes), row.location) for row in rows
    ]
    return Records.merge(records, classes)


def default_image_paths(table: Path) -> list[Path]:
    """Zips that are named like the table, with or without a number, then the table's own folder."""
    zip_name = re.compile(re.escape(table.stem) + r"([-_.]?\d+)?\.zip", re.IGNORECASE)
    return [*sorted(path for path in table.parent.glob("*.zip") if zip_name.fullmatch(path.name)), table.parent]


def guess_separator(labels: Iterable[str | list[str]]) -> str:
    """Guess the separator of labels: the first of ; | , tab and space that occurs in any row.

    The guess is made for the table as a whole, so that "traffic light" is one label where another row has "car;dog".
    """
    text = "".join(cell for cell in labels if isinstance(cell, str))
    return next((separator for separator in _SEPARATORS if separator in text), " ")


def split_labels(labels: str | list[str], separator: str) -> frozenset[str]:
    """Split the labels of one row; a list is taken as it is."""
    parts = labels.split(separator) if isinstance(labels, str) else labels
    return frozenset(part.strip() for part in parts if part.strip())


@dataclass(frozen=True)
class _Row:
    """One row of a table.

    Attributes:
        image: Name of the image.
        labels: Labels as one text that is still to be split, or as a list.
        split: Content of the column `split`.
        location: File and line number, for error messages.
    """

    image: str
    labels: str | list[str]
    split: str | None
    location: str


def _read_rows(path: Path) -> list[_Row]:
    text = read_text(path)
    rows = list(_json_rows(path, text) if path.suffix.lower() in {".jsonl", ".ndjson"} else _csv_rows(path, text))
    if not rows:
        raise DataError(f"{path}: has no rows", "write one line per image: image,labels")
    return rows


def _rows_of_split(rows: Sequence[_Row], path: Path, split: str) -> list[_Row]:
    splits = {row.split for row in rows if row.split}
    if not splits:
        raise DataError(f"{path}: has no column 'split'", "leave out {split} or add the column")
    if split not in splits:
        raise DataError(f"{path}: {unknown_name('split', split, splits)}")
    return [row for row in rows if row.split == split]


def _find_image(row: _Row, indexes: Iterable[FileIndex]) -> FileRef | None:
    path = Path(row.image)
    if path.is_absolute():
        return FileRef(path) if is_file(path) else None
    try:
        return next((file for index in indexes if (file := index.find(row.image))), None)
    except DataError as error:
        raise DataError(f"{row.location}: {error.problem}", error.advice) from error


def _json_rows(path: Path, text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        location = f"{path}:{number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{location}: is not valid JSON ({error})", "write one object per line") from error
        if not isinstance(entry, dict):
            raise DataError(f"{location}: is not a JSON object", 'write {{"file_name": ..., "labels": [...]}}')
        image = next((entry[key] for key in _IMAGE_COLUMNS if entry.get(key)), None)
        key = next((key for key in _LABEL_COLUMNS if key in entry), None)
        if image is None or key is None:
            missing_key = "file_name" if image is None else "labels"
            raise DataError(f"{location}: has no {missing_key}; its keys are {', '.join(entry) or 'none'}")
        value = [] if entry[key] is None else entry[key]
        labels = [str(label) for label in value] if isinstance(value, list) else str(value)
        split = entry.get("split")
        yield _Row(str(image), labels, None if split is None else str(split), location)


def _csv_rows(path: Path, text: str) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text), delimiter=_delimiter(path, text), skipinitialspace=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: is not valid CSV ({error})", "quote the cell") from error
    image, labels, split, width = 0, 1, None, 2
    if lines and _is_header(lines[0][1], lines[1:]):
        header = [cell.lower() for cell in lines.pop(0)[1]]
        image, labels, split = _find_columns(path, header)
        width = len(header)
    # Unquoted labels that are separated by the table's own delimiter continue past the last column.
    extra_columns = labels == width - 1 and any(len(cells) > width for _, cells in lines)
    for number, cells in lines:
        location = f"{path}:{number}"
        if len(cells) <= image or not cells[image]:
            # The column number is not user text, so it may stand in the advice.
            raise DataError(f"{location}: names no image", f"write the image's file name in column {image + 1}")
        label_cells = cells[labels:] if extra_columns else "".join(cells[labels : labels + 1])
        yield _Row(cells[image], label_cells, None if split is None else "".join(cells[split : split + 1]), location)


def _delimiter(path: Path, text: str) -> str:
    """First of tab, comma and semicolon outside quotes in the first line; if there is none, by the file's suffix."""
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = re.search(r"[\t,;]", re.sub(r'"[^"]*"', "", first_line))
    if delimiter:
        return delimiter.group()
    return "\t" if path.suffix.lower() in {".tsv", ".tab"} else ","


def _is_header(first: Sequence[str], others: Sequence[tuple[int, list[str]]]) -> bool:
    if any(_is_image_name(cell) for cell in first):
        return False
    names = {cell.lower() for cell in first}
    if names & {*_IMAGE_COLUMNS} and (names & {*_LABEL_COLUMNS} or len(first) == 2):
        return True
    return bool(others) and any(_is_image_name(cell) for cell in others[0][1])


def _is_image_name(cell: str) -> bool:
    return PurePosixPath(cell).suffix.lower() in IMAGE_SUFFIXES


def _find_columns(path: Path, header: list[str]) -> tuple[int, int, int | None]:
    """Positions of the columns image, labels and split, by name; of two columns, one name decides both."""
    image = next((header.index(name) for name in _IMAGE_COLUMNS if name in header), None)
    labels = next((header.index(name) for name in _LABEL_COLUMNS if name in header), None)
    if len(header) == 2:
        image = image if image is not None else (1 - labels if labels is not None else 0)
        labels = labels if labels is not None else 1 - image
    if image is None or labels is None or image == labels:
        missing_column = "image" if image is None else "labels"
        raise DataError(f"{path}:1: has no column {missing_column!r} among {', '.join(header)}", "rename the column")
    return image, labels, header.index("split") if "split" in header else None
