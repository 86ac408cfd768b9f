"""Datasets of Hugging Face: Arrow files as `save_to_disk` writes them, and Parquet files as on the hub.

Images stay in the files: those of Arrow are read through a memory map, those of Parquet a row group at a time.
"""

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

from tagseg.data.files import FileRef, is_file, read_text
from tagseg.data.labels import LABEL_COLUMNS, Cell, choose_separator, split_labels
from tagseg.data.records import Record, Records
from tagseg.errors import DataError, first_line

ARROW_SUFFIXES = (".arrow", ".parquet")
_MAX_ROW_GROUP = 2**29  # bytes; a row group is held in memory, and each worker holds some
_CACHED_ROW_GROUPS = 4  # of each process
_UNREADABLE = "download or save it again"
_NO_LABEL = -1  # of a split whose labels are not published


@dataclass(frozen=True)
class ArrowCell(FileRef):
    """The image in a row of an Arrow or Parquet file.

    Attributes:
        column: Name of the column of images.
        row: Number of the row.
    """

    column: str = ""
    row: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.row}"

    def size(self) -> int:
        return 0  # the cell is in memory or in a memory map

    def read(self) -> bytes:
        cell = _read_cell(self.path, self.column, self.row)
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if isinstance(content, bytes):
            return content
        if isinstance(cell, dict) and isinstance(cell.get("path"), str):
            file = self.path.parent / cell["path"]
            if not is_file(file):
                raise DataError(
                    f"{self}: has only the path of its image, and {file} does not exist",
                    "put the image there, or write the dataset by save_to_disk, which stores the images",
                )
            return FileRef(file).read()
        raise DataError(f"{self}: has no image", "remove the row")


def read_arrow(files: Sequence[Path], *, classes: Sequence[str] | None = None, separator: str | None = None) -> Records:
    """Read the labels of Arrow or Parquet files; the names of class labels are in the dataset's metadata.

    Args:
        files: Files of one split.
        classes: Class names in their order; None means those of the metadata, or all labels in alphabetical order.
        separator: Separator of labels in a text; None means that the rows show it, see `choose_separator`.
    """
    _forget_files()
    rows: list[tuple[ArrowCell, str | None, Cell]] = []
    names: list[str] | None = None
    for file in files:
        columns = _find_columns(file)
        names = columns.class_names
        labels, paths = _read_labels(file, columns)
        for row, (label, path) in enumerate(zip(labels, paths, strict=True)):
            cell = ArrowCell(file, None, columns.image, row)
            rows.append((cell, path, _label_names(cell, label, names)))
    if not rows:
        raise DataError(f"{files[0]}: has no rows", "name a dataset with at least one image")
    if separator is None:
        separator = choose_separator((cell for _, _, cell in rows), files[0], classes)
    records = [
        Record(image, split_labels(labels, separator), file, str(file))
        for image, (file, _, labels) in zip(_image_names([path for _, path, _ in rows]), rows, strict=True)
    ]
    return Records.merge(records, names if classes is None else classes)


def arrow_images(path: Path) -> Iterator[tuple[str, FileRef]]:
    """Names and images of an Arrow or Parquet file, which needs no labels."""
    _forget_files()
    columns = _find_columns(path, needs_labels=False)
    _, paths = _read_labels(path, columns)
    for row, name in enumerate(_image_names(paths)):
        yield name, ArrowCell(path, None, columns.image, row)


@dataclass(frozen=True)
class _Columns:
    """Columns of a dataset.

    Attributes:
        image: Name of the column of images.
        has_paths: Whether the images come with the paths of the files that they were.
        labels: Name of the column of labels.
        class_names: Names of the classes whose numbers the labels are; None if the labels are names.
    """

    image: str
    has_paths: bool
    labels: str | None
    class_names: list[str] | None


def _find_columns(path: Path, *, needs_labels: bool = True) -> _Columns:
    """Find the columns of images and labels by the dataset's features, or by their types and names."""
    with _reading(path):
        schema = _open_table(path).schema_arrow if _is_parquet(path) else _open_table(path).schema
        types = {field.name: str(field.type) for field in schema}
    features = _features(path, schema.metadata or {})
    images = [name for name, feature in features.items() if _type(feature) == "Image"]
    images += [name for name, kind in types.items() if "<bytes: binary" in kind or kind.endswith("binary")]
    labels = [name for name in LABEL_COLUMNS if name in types][:1]
    labels = labels or [name for name, feature in features.items() if _class_names(feature) is not None]
    missing_column = "images" if not images else "labels" if needs_labels and not labels else None
    if missing_column:
        raise DataError(
            f"{path}: has no column of {missing_column} among {', '.join(types) or 'none'}",
            "images are a feature Image, labels a column labels, label or tags",
        )
    if needs_labels and len(labels) > 1:
        raise DataError(f"{path}: has the columns of labels {', '.join(labels)}", "rename one of them to label")
    image = "image" if "image" in images else images[0]
    class_names = _class_names(features.get(labels[0])) if labels else None
    return _Columns(image, "path: " in types[image], labels[0] if labels else None, class_names)


def _features(path: Path, metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """Features of a dataset, from the file's own metadata or from the dataset_info.json beside it."""
    info = path.parent / "dataset_info.json"
    if b"huggingface" in metadata:
        location, text = str(path), metadata[b"huggingface"].decode(errors="replace")
    elif info.is_file():
        location, text = str(info), read_text(info)
    else:
        return {}
    try:
        content = json.loads(text)
        features = content.get("info", content).get("features") or {}
        return dict(features)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(f"{location}: its features are damaged ({error})", _UNREADABLE) from error


def _type(feature: Any) -> Any:
    return feature.get("_type") if isinstance(feature, dict) else None


def _class_names(feature: Any) -> list[str] | None:
    """Class names of a feature ClassLabel or a list of these."""
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]  # as old versions write a list
        elif isinstance(feature, dict) and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    names = feature.get("names") if _type(feature) == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) else None


def _label_names(cell: ArrowCell, value: Any, names: list[str] | None) -> Cell:
    """Labels of a row, as text that is still to be split or as a list."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(label, dict | list) for label in values):
        raise DataError(f"{cell}: its labels are neither names nor numbers", "name a column of labels 'labels'")
    if names is None and isinstance(value, list):
        return [str(label) for label in values if label is not None]
    if names is None:
        return "" if value is None else str(value)
    for label in values:
        if label == _NO_LABEL:
            raise DataError(f"{cell}: has the label -1, which means that it is unknown", "choose another {split}")
        if not isinstance(label, int) or not 0 <= label < len(names):
            raise DataError(f"{cell}: has the label {label!r}, but there are {len(names)} classes", _UNREADABLE)
    return [names[label] for label in values]


def _image_names(paths: Sequence[str | None]) -> list[str]:
    """Names of images: their paths if every image has one of its own, otherwise their numbers."""
    if all(paths) and len(set(paths)) == len(paths):
        return [str(path).lstrip("/") for path in paths]
    return [f"{number:06d}" for number in range(len(paths))]


def _read_labels(path: Path, columns: _Columns) -> tuple[list[Any], list[str | None]]:
    """Labels and image paths of all rows, without reading the images."""
    table = _open_table(path)
    with _reading(path):
        if _is_parquet(path):
            image_paths = [f"{columns.image}.path"] if columns.has_paths else []
            labels = [columns.labels] if columns.labels else []
            length = table.metadata.num_rows
            table = table.read([*labels, *image_paths], use_threads=False)
        else:
            length = table.num_rows
            for name in (columns.labels, columns.image):
                if name is not None:
                    table[name].validate(full=True)  # Arrow trusts the positions in a file: a wrong one is a crash
        labels_or_none = table[columns.labels].to_pylist() if columns.labels else [None] * length
        chunks = table[columns.image].chunks if columns.has_paths else []
        paths = [text for chunk in chunks for text in chunk.field("path").to_pylist()] or [None] * length
        if not len(labels_or_none) == len(paths) == length:
            raise OSError("its columns differ in length")
        return labels_or_none, paths


def _read_cell(path: Path, column: str, row: int) -> Any:
    """Value of a column in a row."""
    with _reading(path):
        if not _is_parquet(path):
            return _open_table(path)[column][row].as_py()
        starts = _row_group_starts(path, os.getpid())
        group = bisect_right(starts, row) - 1
        size = _open_table(path).metadata.row_group(group).total_byte_size
        if size > _MAX_ROW_GROUP:
            raise DataError(
                f"{path}: a row group has {size / 2**20:,.0f} MiB, and reading an image needs all of it in memory",
                "write it with about 100 rows in a group: pyarrow.parquet.write_table(..., row_group_size=100)",
            )
        with _lock(os.getpid()):  # threads wait for a row group instead of reading it again
            cells = _read_row_group(path, group, column, os.getpid())
        return cells[row - starts[group]].as_py()


@lru_cache(maxsize=_CACHED_ROW_GROUPS)
def _read_row_group(path: Path, group: int, column: str, process_id: int) -> Any:  # noqa: ARG001
    return _open_table(path).read_row_group(group, [column], use_threads=False)[column]


@lru_cache(maxsize=256)
def _row_group_starts(path: Path, process_id: int) -> list[int]:  # noqa: ARG001
    """First row of every row group."""
    metadata = _open_table(path).metadata
    return [0, *accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))][:-1]


@lru_cache(maxsize=1)
def _lock(process_id: int) -> Lock:  # noqa: ARG001  a process may be forked while another thread holds the lock
    return Lock()


def _forget_files() -> None:
    """Close all files: they may have been written again since they were opened."""
    for cached in (_open_table_of_process, _row_group_starts, _read_row_group):
        cached.cache_clear()


def _open_table(path: Path) -> Any:
    """Open a Parquet file, or an Arrow file as a table in a memory map."""
    # Worker processes must not share one handle, because they would move each other's file position.
    return _open_table_of_process(path, os.getpid())


@lru_cache(maxsize=256)
def _open_table_of_process(path: Path, process_id: int) -> Any:  # noqa: ARG001
    pa, parquet = _import_pyarrow(path)
    if not is_file(path):
        raise DataError(f"{path}: does not exist", "name a file that does")
    with _reading(path):
        if _is_parquet(path):
            return parquet.ParquetFile(path)
        return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


def _import_pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"{path}: reading Arrow and Parquet files needs pyarrow", "install it with: pip install 'tagseg[hf]'"
        ) from error
    return pyarrow, parquet


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors about a damaged file, whose names may be no UTF-8, into one line."""
    pa, _ = _import_pyarrow(path)
    try:
        yield
    except (OSError, LookupError, UnicodeDecodeError, pa.ArrowException) as error:
        kind = "a Parquet" if _is_parquet(path) else "an Arrow"
        raise DataError(f"{path}: is not {kind} file that can be read ({first_line(error)})", _UNREADABLE) from error
