"""Tables of image and labels: CSV, TSV, and the metadata files of Hugging Face's imagefolder."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tagseg.data._table_lines import Line, guess_separator, read_lines, split_labels
from tagseg.data.files import FileRef, Place
from tagseg.data.listing import Listing, Row, make_listing
from tagseg.errors import DataError, unknown_name

# Folders that are known to hold masks: no image is looked for there.
_MASK_FOLDERS = frozenset({"masks", "segmentationclass", "segmentationclassaug", "segmentationobject"})


def list_table(
    path: Path,
    *,
    images: Sequence[Path] = (),
    split: str | None = None,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
) -> Listing:
    """List the images of a CSV, TSV or JSON lines file.

    Several rows of one image are joined. Images are looked for in `images`, or else in zips named like the table
    (t.csv: t.zip, t-0.zip, t-1.zip and so on) and in the table's folder.

    Args:
        path: the table.
        images: folders and zips that hold the images.
        split: keep only the rows whose column `split` says so.
        classes: the classes in their order; all labels in alphabetical order if not given.
        separator: what separates the labels of a row; guessed from the whole table if not given.
    """
    lines = read_lines(path)
    if split is not None:
        lines = _of_split(lines, path, split)
    if separator is None:
        separator = guess_separator(line.labels for line in lines)
    places = [Place(place, skip=_MASK_FOLDERS) for place in images or places_beside(path)]
    rows = [Row(line.image, split_labels(line.labels, separator), _find(line, places), line.where) for line in lines]
    return make_listing(str(path), rows, classes)


def places_beside(path: Path) -> list[Path]:
    """Zips that are named like the table, with or without a number, then the table's own folder."""
    numbered = re.compile(re.escape(path.stem) + r"([-_.]?\d+)?\.zip", re.IGNORECASE)
    return [*sorted(other for other in path.parent.glob("*.zip") if numbered.fullmatch(other.name)), path.parent]


def _of_split(lines: Sequence[Line], path: Path, split: str) -> list[Line]:
    splits = {line.split for line in lines if line.split}
    if not splits:
        raise DataError(f"{path}: has no column 'split'; leave out split= or add the column")
    if split not in splits:
        raise DataError(f"{path}: {unknown_name('split', split, splits)}")
    return [line for line in lines if line.split == split]


def _find(line: Line, places: Iterable[Place]) -> FileRef | None:
    if Path(line.image).is_absolute():
        return FileRef(Path(line.image)) if Path(line.image).is_file() else None
    try:
        return next((found for place in places if (found := place.find(line.image))), None)
    except DataError as error:
        raise DataError(f"{line.where}: {error}") from error
