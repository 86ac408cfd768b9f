"""A folder per class: root/dog/1.jpg."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tagseg.data.files import FileRef
from tagseg.data.images import SUFFIXES
from tagseg.data.listing import Listing, Row, make_listing
from tagseg.errors import DataError, unknown_name

_SPLIT_FOLDERS = frozenset({"train", "training", "val", "valid", "validation", "test"})


def list_folders(root: Path, *, split: str | None = None, classes: Sequence[str] | None = None) -> Listing:
    """List the images of a folder per class, or of root/split/class.

    An image that lies in several class folders under the same name with the same bytes has all these labels. The same
    name with other bytes is another image, since many datasets number theirs anew in every folder.

    Args:
        root: the folder of the class folders.
        split: a folder in between.
        classes: the classes in their order; all folders in alphabetical order if not given.
    """
    folders = _subfolders(root)
    if split is not None:
        if split not in folders:
            raise DataError(f"{root}: {unknown_name('split', split, folders)}")
        root = root / split
        folders = _subfolders(root)
    elif folders and _SPLIT_FOLDERS.issuperset(name.lower() for name in folders):
        raise DataError(f"{root}: holds the splits {', '.join(folders)}; name one of them with split=")
    copies: dict[tuple[str, str], list[tuple[str, Path]]] = defaultdict(list)
    for path, label, name, content in _images(root, folders):
        copies[name, content].append((label, path))
    if not copies:
        raise DataError(
            f"{root}: holds no table and no images in folders named like their class; name a CSV, or sort them"
        )
    rows = []
    for found in copies.values():
        path = found[0][1]
        labels = frozenset(label for label, _ in found)
        rows.append(Row(path.relative_to(root).as_posix(), labels, FileRef(path), str(path)))
    return make_listing(str(root), sorted(rows, key=lambda row: row.image), classes)


def _subfolders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images(root: Path, folders: Sequence[str]) -> list[tuple[Path, str, str, str]]:
    """Path, class, name within the class folder, and a digest where that name occurs in several class folders."""
    found = [
        (path, folder, path.relative_to(root / folder).as_posix())
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file()
    ]
    owners: dict[str, int] = defaultdict(int)
    for _, _, name in found:
        owners[name] += 1
    return [(path, folder, name, _digest(path) if owners[name] > 1 else "") for path, folder, name in found]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
