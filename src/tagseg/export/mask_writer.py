"""What the writers of annotation formats have in common."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TextIO

from tagseg.data.annotations import IGNORED_NAME
from tagseg.data.masks import IGNORE_LABEL, Mask


@dataclass(frozen=True)
class ExportOptions:
    """What is exported and how.

    Attributes:
        out: Folder to write to.
        classes: Class names: the k-th one has the value k in a mask, 0 is background and 255 is ignored.
        split: Name of the split, if the source has one.
        polygons: Write polygons instead of run lengths.
        image_url: Start of the images' URLs.
    """

    out: Path
    classes: tuple[str, ...]
    split: str | None = None
    polygons: bool = False
    image_url: str | None = None

    def name_of(self, value: int) -> str:
        """Name of the class with this value in a mask."""
        return IGNORED_NAME if value == IGNORE_LABEL else self.classes[value - 1]


@dataclass(frozen=True)
class ExportedImage:
    """An image whose mask is written.

    Attributes:
        name: Name without a suffix.
        suffix: Suffix of its file.
        mask: Its mask, [H, W].
        values: Classes that have a pixel in the mask, and 255 if a pixel is ignored.
    """

    name: str
    suffix: str
    mask: Mask
    values: tuple[int, ...]

    @property
    def file_name(self) -> str:
        """Name of the image's file."""
        return self.name + self.suffix


class MaskWriter(ABC):
    """Writer of a format; `encode` runs in threads, the rest in the order of the images.

    Args:
        options: What is exported and how.
    """

    needs_images: ClassVar[bool] = False  # whether the format has no meaning without image files
    has_polygons: ClassVar[bool] = False  # whether it offers the choice of polygons
    has_urls: ClassVar[bool] = False  # whether it names images by URL

    def __init__(self, options: ExportOptions) -> None:
        self.options = options

    @property
    @abstractmethod
    def image_folder(self) -> Path:
        """Folder for the image files."""

    @abstractmethod
    def encode(self, image: ExportedImage) -> Any:
        """Encode an image's mask, and write its files."""

    @abstractmethod
    def add(self, encoded: Any) -> None:
        """Add what `encode` returned to a list."""

    @abstractmethod
    def finish(self) -> None:
        """Write what lists all images."""

    def close(self) -> None:  # noqa: B027  most formats have none
        """Close files that are still open after an error."""


class JsonLists:
    """A JSON file of one long list, which is written entry by entry, and of further values.

    Args:
        path: File to write; it must not exist.
        start: JSON up to the first entry.
    """

    def __init__(self, path: Path, start: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("x", encoding="utf-8")
        self._file.write(start)
        self._separator = "\n"

    def add(self, entry: object) -> None:
        """Write an entry."""
        self._file.write(self._separator + to_json(entry))
        self._separator = ",\n"

    def finish(self, end: str) -> None:
        """Write the JSON after the last entry."""
        self._file.write(end)
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def to_json(value: object) -> str:
    """JSON on one line, with names as they are."""
    return json.dumps(value, ensure_ascii=False)


def write_new(path: Path, content: bytes | str) -> None:
    """Write a file that must not exist; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
