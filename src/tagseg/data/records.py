"""Records of image and labels, which every reader of a format returns before any image is opened."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tagseg.data.files import FileRef, ImageFiles
from tagseg.data.images import strip_image_suffix
from tagseg.errors import DataError, printable, unknown_name

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is to be reported before that
    from tagseg.data.dataset import ImageDataset


@dataclass(frozen=True, slots=True)
class Record:
    """One image of a source.

    Attributes:
        image: Name of the image in its source.
        labels: Image-level labels.
        file: The image's file, None if it was not found.
        location: Where the source lists the image, for error messages.
    """

    image: str
    labels: frozenset[str]
    file: FileRef | None
    location: str


@dataclass(frozen=True)
class Records:
    """All images of a source with their labels; each image occurs once.

    Attributes:
        classes: Class names.
        records: One record per image.
        repeated: The records that were merged into one, for each image of which they have different labels.
    """

    classes: tuple[str, ...]
    records: tuple[Record, ...]
    repeated: tuple[tuple[Record, ...], ...] = ()

    @classmethod
    def merge(cls, records: Sequence[Record], classes: Sequence[str] | None) -> "Records":
        """Merge records of the same image and check their labels.

        Args:
            records: Records in their order.
            classes: Class names in their order; None means all labels in alphabetical order.
        """
        for record in records:
            _require_printable(record.image, record.location, "image")
            for label in record.labels:
                _require_printable(label, record.location, "label")
        by_image: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            by_image[record.image].append(record)
        merged = [
            replace(rows[0], labels=rows[0].labels.union(*(row.labels for row in rows))) for rows in by_image.values()
        ]
        differing = tuple(tuple(rows) for rows in by_image.values() if len({row.labels for row in rows}) > 1)
        if classes is None:
            classes = sorted({label for record in records for label in record.labels})
        elif len(set(classes)) != len(classes):
            repeated = Counter(classes).most_common(1)[0][0]
            raise DataError(f"classes: {repeated!r} is named twice", "name each class once")
        known = frozenset(classes)
        for record in records:
            for label in record.labels - known:
                raise DataError(f"{record.location}: {unknown_name('class', label, known)}")
        return cls(tuple(classes), tuple(merged), differing)

    @property
    def image_ids(self) -> list[str]:
        """One ID per record: the image's name without its suffix, or with it where two would be the same."""
        paths = [PurePosixPath(record.image.replace("\\", "/")) for record in self.records]
        stems = [strip_image_suffix(path) for path in paths]
        uses = Counter(stems)
        return [str(stem if uses[stem] == 1 else path) for stem, path in zip(stems, paths, strict=True)]

    @property
    def missing(self) -> tuple[Record, ...]:
        """Records whose image was not found."""
        return tuple(record for record in self.records if record.file is None)

    def dataset(self) -> "ImageDataset":
        """Build a dataset of the records whose image was found."""
        import torch

        from tagseg.data.dataset import ImageDataset

        ids_and_records = [pair for pair in zip(self.image_ids, self.records, strict=True) if pair[1].file]
        column = {name: i for i, name in enumerate(self.classes)}
        labels = torch.zeros(len(ids_and_records), len(column))
        for i, (_, record) in enumerate(ids_and_records):
            labels[i, [column[label] for label in record.labels]] = 1
        files = tuple(record.file for _, record in ids_and_records if record.file)
        image_ids = [image_id for image_id, _ in ids_and_records]
        return ImageDataset(self.classes, image_ids, labels, ImageFiles(files))


def _require_printable(name: str, location: str, kind: str) -> None:
    """Refuse line ends, escapes and bytes that are no UTF-8: names are listed in files and printed."""
    if not name.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        raise DataError(f"{location}: the {kind} {printable(name)} has a character that is not printable", "rename it")
