"""Tables of image and labels: CSV, TSV, and JSON lines such as the metadata files of Hugging Face's imagefolder."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tagseg._json import parse_json
from tagseg.data.files import FileIndex, FileRef, is_file, read_text
from tagseg.data.images import IMAGE_SUFFIXES
from tagseg.data.labels import LABEL_COLUMNS, Cell, choose_separator, parse_labels, parse_list, split_labels
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
_ONE_HOT_VALUES = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}
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
        separator: Separator of the labels in a row; None means that the rows show it, see `choose_separator`.
        find_images: Look for the images; without it records have no file.
    """
    rows, columns = _read_rows(path)
    if separator is None:
        separator = choose_separator((row.labels for row in rows), path, classes)
    if split is not None:
        rows = _rows_of_split(rows, path, split)
    folders = (images or default_image_paths(path)) if find_images else ()
    indexes = [FileIndex(folder, skip=_MASK_FOLDERS) for folder in folders]
    records = [
        Record(row.image, split_labels(row.labels, separator), _find_image(row, indexes), row.location) for row in rows
    ]
    return Records.merge(records, columns if classes is None else classes)


def default_image_paths(table: Path) -> list[Path]:
    """Zips that are named like the table, with or without a number, then the table's own folder."""
    zip_name = re.compile(re.escape(table.stem) + r"([-_.]?\d+)?\.zip", re.IGNORECASE)
    return [*sorted(path for path in table.parent.glob("*.zip") if zip_name.fullmatch(path.name)), table.parent]


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
    labels: Cell
    split: str | None
    location: str


def _read_rows(path: Path) -> tuple[list[_Row], tuple[str, ...] | None]:
    """Rows of a table, and the names of its classes if it has a column of 0 and 1 for each."""
    text, classes = read_text(path), None
    if path.suffix.lower() in {".jsonl", ".ndjson"}:
        rows = list(_json_rows(path, text))
    else:
        rows, classes = _csv_rows(path, text)
    if not rows:
        raise DataError(f"{path}: has no rows", "write one line per image: image,labels")
    return rows, classes


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
        entry = parse_json(line, location, "write one object per line")
        if not isinstance(entry, dict):
            raise DataError(f"{location}: is not a JSON object", 'write {{"file_name": ..., "labels": [...]}}')
        image = next((entry[key] for key in _IMAGE_COLUMNS if entry.get(key)), None)
        key = next((key for key in LABEL_COLUMNS if key in entry), None)
        if image is None or key is None:
            missing_key = "file_name" if image is None else "labels"
            raise DataError(f"{location}: has no {missing_key}; its keys are {', '.join(entry) or 'none'}")
        if not isinstance(image, str | int | float):
            raise DataError(f"{location}: the name of its image is a {type(image).__name__}", "write a text")
        split = entry.get("split")
        labels = parse_labels(entry[key], f"{location}: {key}")
        yield _Row(str(image), labels, None if split is None else str(split), location)


def _csv_rows(path: Path, text: str) -> tuple[list[_Row], tuple[str, ...] | None]:
    reader = csv.reader(io.StringIO(text), delimiter=_delimiter(path, text), skipinitialspace=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: is not valid CSV ({error})", "quote the cell") from error
    columns = _Columns(image=0, labels=1, split=None, one_hot={})
    width = 2
    if lines and _is_header(lines[0][1], lines[1:]):
        header = lines.pop(0)[1]
        columns = _find_columns(path, header, lines[0][1] if lines else [])
        width = len(header)
    # Unquoted labels that are separated by the table's own delimiter continue past the last column.
    extra_columns = columns.labels == width - 1 and any(len(cells) > width for _, cells in lines)
    rows = []
    for number, cells in lines:
        location = f"{path}:{number}"
        if len(cells) <= columns.image or not cells[columns.image]:
            # The column number is not user text, so it may stand in the advice.
            raise DataError(f"{location}: names no image", f"write the image's file name in column {columns.image + 1}")
        labels: Cell | None
        if columns.labels is None:
            labels = _one_hot_labels(columns.one_hot, cells, location)
        else:
            label_cells = cells[columns.labels :] if extra_columns else cells[columns.labels : columns.labels + 1]
            labels = parse_list(",".join(label_cells), location)
            if labels is None:
                labels = label_cells if extra_columns else "".join(label_cells)
        split = None if columns.split is None else "".join(cells[columns.split : columns.split + 1])
        rows.append(_Row(cells[columns.image], labels, split, location))
    return rows, tuple(columns.one_hot) or None


@dataclass(frozen=True)
class _Columns:
    """Positions of a table's columns.

    Attributes:
        image: Name of the image.
        labels: Labels, None if every class has a column.
        split: Split, None if there is no such column.
        one_hot: Column of 0 and 1 of each class.
    """

    image: int
    labels: int | None
    split: int | None
    one_hot: dict[str, int]


def _one_hot_labels(columns: Mapping[str, int], cells: Sequence[str], location: str) -> list[str]:
    labels = []
    for name, column in columns.items():
        value = _ONE_HOT_VALUES.get("".join(cells[column : column + 1]).lower())
        if value is None:
            raise DataError(
                f"{location}: has {''.join(cells[column : column + 1])!r} in the column {name!r} of a class",
                "write 1 for images that show it, else 0; remove columns that are no class",
            )
        if value:
            labels.append(name)
    return labels


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
    if names & {*_IMAGE_COLUMNS} and (names & {*LABEL_COLUMNS} or len(first) == 2):
        return True
    second = others[0][1] if others else []
    if names & {*_IMAGE_COLUMNS} and any(cell.lower() in _ONE_HOT_VALUES for cell in second):
        return not names & _ONE_HOT_VALUES.keys()
    return any(_is_image_name(cell) for cell in second)


def _is_image_name(cell: str) -> bool:
    return PurePosixPath(cell).suffix.lower() in IMAGE_SUFFIXES


def _find_columns(path: Path, header: list[str], first: Sequence[str]) -> _Columns:
    """Find the columns image, labels and split by name, and those of the classes by the 0 and 1 in the first row.

    Of two columns, one name decides both.
    """
    names = [name.lower() for name in header]
    image = next((names.index(name) for name in _IMAGE_COLUMNS if name in names), None)
    labels = next((names.index(name) for name in LABEL_COLUMNS if name in names), None)
    split = names.index("split") if "split" in names else None
    if labels is None:
        image_column = 0 if image is None else image
        others = [i for i in range(len(header)) if i not in (image_column, split)]
        if others and all(i < len(first) and first[i].lower() in _ONE_HOT_VALUES for i in others):
            one_hot = {header[i]: i for i in others}
            if len(one_hot) < len(others) or "" in one_hot:
                raise DataError(f"{path}:1: a class has no name or two columns", "name each column differently")
            return _Columns(image_column, None, split, one_hot)
    if len(header) == 2:
        image = image if image is not None else (1 - labels if labels is not None else 0)
        labels = labels if labels is not None else 1 - image
    if image is None or labels is None or image == labels:
        missing_column = "image" if image is None else "labels"
        raise DataError(
            f"{path}:1: has no column {missing_column!r} among {', '.join(header)}",
            "rename the column, or keep only columns of 0 and 1, one for each class",
        )
    return _Columns(image, labels, split, {})
