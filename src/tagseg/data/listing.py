"""What every reader of a format returns: rows of image and labels, before any image is opened."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import torch

from tagseg.data.dataset import ImageDataset
from tagseg.data.files import FileRef, ImageFiles
from tagseg.data.images import without_ending
from tagseg.errors import DataError, unknown_name


@dataclass(frozen=True)
class Row:
    """One image: the name that its source gives it, its labels, its file (None: not found), and who says so."""

    image: str
    labels: frozenset[str]
    file: FileRef | None
    where: str


@dataclass(frozen=True)
class Listing:
    """The images of a source with their labels."""

    source: str
    classes: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def missing(self) -> tuple[Row, ...]:
        """The rows whose image was not found."""
        return tuple(row for row in self.rows if row.file is None)

    def require_images(self) -> "Listing":
        """Refuse a listing of which an image is missing, or that has none."""
        if missing := self.missing:
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise DataError(
                f"{missing[0].where}: no image {missing[0].image!r}{others} was found; "
                "name its folder or zip with images=, or remove the row"
            )
        if not self.rows:
            raise DataError(f"{self.source}: has no images; name a source with at least one")
        return self

    def dataset(self, *, max_side: int | None = None) -> ImageDataset:
        """The rows whose image was found, as a dataset."""
        found = [(name, row.labels, row.file) for name, row in zip(self.names, self.rows, strict=True) if row.file]
        column = {name: i for i, name in enumerate(self.classes)}
        tags = torch.zeros(len(found), len(column))
        for i, (_, labels, _) in enumerate(found):
            tags[i, [column[label] for label in labels]] = 1
        images = ImageFiles(tuple(file for _, _, file in found), max_side)
        return ImageDataset(self.classes, [name for name, _, _ in found], tags, images)

    @property
    def names(self) -> list[str]:
        """An ID for each row: the image's name without its ending, or with it where two would be the same."""
        paths = [PurePosixPath(row.image.replace("\\", "/")) for row in self.rows]
        stems = [without_ending(path) for path in paths]
        uses = Counter(stems)
        return [str(stem if uses[stem] == 1 else path) for stem, path in zip(stems, paths, strict=True)]


def make_listing(source: str, rows: Sequence[Row], classes: Sequence[str] | None) -> Listing:
    """Join rows of the same image and settle the classes: those given, or all labels in alphabetical order."""
    joined: dict[str, Row] = {}
    for row in rows:
        if earlier := joined.get(row.image):
            row = replace(earlier, labels=earlier.labels | row.labels)
        joined[row.image] = row
    if classes is None:
        classes = sorted({label for row in rows for label in row.labels})
    elif len(set(classes)) != len(classes):
        raise DataError(f"classes: {Counter(classes).most_common(1)[0][0]!r} is named twice; name each class once")
    known = frozenset(classes)
    for row in rows:
        for label in row.labels - known:
            raise DataError(f"{row.where}: {unknown_name('class', label, known)}")
    return Listing(source, tuple(classes), tuple(joined.values()))
