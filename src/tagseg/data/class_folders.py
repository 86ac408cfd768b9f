"""One folder per class, as torchvision's ImageFolder has it: root/dog/1.jpg."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tagseg.data.files import FileRef
from tagseg.data.images import IMAGE_SUFFIXES
from tagseg.data.records import Record, Records
from tagseg.errors import DataError, unknown_name

_SPLIT_FOLDERS = frozenset({"train", "training", "val", "valid", "validation", "test"})


def read_class_folders(root: Path, *, split: str | None = None, classes: Sequence[str] | None = None) -> Records:
    """Read images from root/class, or from root/split/class.

    A file that lies in several class folders under the same name has all these labels. Files of the same name but
    with different content are different images, because many datasets number the images of each folder separately.

    Args:
        root: Folder of the class folders.
        split: Folder between the root and the class folders.
        classes: Class names in their order; None means all folders in alphabetical order.
    """
    folders = _subfolders(root)
    if split is not None:
        if split not in folders:
            raise DataError(f"{root}: {unknown_name('split', split, folders)}")
        root = root / split
        folders = _subfolders(root)
    elif folders and _SPLIT_FOLDERS.issuperset(name.lower() for name in folders):
        raise DataError(f"{root}: holds the splits {', '.join(folders)}", "name one of them with {split}")
    copies: dict[tuple[str, str], list[_ClassImage]] = defaultdict(list)
    for image in _class_images(root, folders):
        copies[image.name, image.digest].append(image)
    if not copies:
        raise DataError(
            f"{root}: holds no table and no images in folders named like their class",
            "name a CSV, or sort the images into folders such as dog/1.jpg",
        )
    records = []
    for images in copies.values():
        path = images[0].path
        labels = frozenset(image.label for image in images)
        records.append(Record(path.relative_to(root).as_posix(), labels, FileRef(path), str(path)))
    return Records.merge(sorted(records, key=lambda record: record.image), classes)


@dataclass(frozen=True)
class _ClassImage:
    """A file in a class folder.

    Attributes:
        path: The file.
        label: Name of the class folder.
        name: Path below the class folder.
        digest: Hash of the content, or "" if no other class folder has a file of this name.
    """

    path: Path
    label: str
    name: str
    digest: str


def _subfolders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _class_images(root: Path, folders: Sequence[str]) -> Iterator[_ClassImage]:
    files = [
        (path, folder, path.relative_to(root / folder).as_posix())
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()
    ]
    uses = Counter(name for _, _, name in files)
    for path, folder, name in files:
        yield _ClassImage(path, folder, name, _digest(path) if uses[name] > 1 else "")


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})", "replace the file or remove it") from error
