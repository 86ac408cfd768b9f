"""Polygons of YOLO: a data.yaml, folders of images, and a text file of polygons for each image.

    data.yaml                  path, train, val, test: folders of images; names: the classes
    images/train/1.jpg         an image
    labels/train/1.txt         its objects, one a line: the class's number, then x and y of each corner from 0 to 1

A file without a line says that the image is background; an image without a file is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml
from typing_extensions import TypedDict  # that of pydantic before Python 3.12

from tagseg._json import validated
from tagseg.data.annotations import (
    AnnotatedImage,
    Annotations,
    class_values,
    require_class_names,
    require_mask_size,
)
from tagseg.data.files import FileIndex, FileRef, expand_home, is_file, read_text
from tagseg.data.images import IMAGE_SUFFIXES, image_size
from tagseg.data.limits import hold_memory, read_file
from tagseg.data.masks import Mask
from tagseg.data.polygons import Polygon, fill_polygon, polygon_area
from tagseg.errors import DataError, unknown_name

YOLO_SUFFIXES = (".yaml", ".yml")
_SPLITS = ("train", "val", "test")
_TOLERANCE = 0.01  # of coordinates outside the image, as YOLO tolerates them
_MAX_LABEL_BYTES = 2**26
_CORRECT = "correct or remove the line"


class _DataFile(TypedDict, total=False):
    path: str | None
    train: str | list[str] | None
    val: str | list[str] | None
    test: str | list[str] | None
    names: list[str | int] | dict[int, str | int] | None


def find_yolo(root: Path) -> Path | None:
    """Find the data.yaml of a folder; None if this is not YOLO's."""
    files = [root / f"data{suffix}" for suffix in YOLO_SUFFIXES]
    return next((file for file in files if is_file(file)), None)


def read_yolo(path: Path, split: str | None = None) -> Annotations:
    """Read the images of a data.yaml and the classes of their polygons.

    Args:
        path: The data.yaml.
        split: train, val or test; needed if they name different images.
    """
    content = _read_data_file(path)
    names = content.get("names") or ()
    if isinstance(names, dict):
        if sorted(names) != list(range(len(names))):
            raise DataError(f"{path}: names: the numbers of the classes have gaps", "number them from 0")
        names = [names[number] for number in range(len(names))]
    texts = [str(name) for name in names]
    require_class_names(texts, f"{path}: names")
    classes, values = class_values(texts)
    images = []
    for name, image in _images_of_split(path, content, split):
        if is_file(labels := label_file(image)):
            image_classes = frozenset(texts[number] for number in _read_class_numbers(labels, len(texts)))
            mask = _YoloMask(FileRef(image), labels, tuple(values))
            images.append(AnnotatedImage(name, FileRef(image), image_classes, mask, str(labels)))
    return Annotations(str(path), classes, tuple(images))


def label_file(image: Path) -> Path:
    """File of an image's polygons: the last folder `images` of its path becomes `labels`, as in ultralytics."""
    parts = list(image.parts)
    folders = [index for index, part in enumerate(parts[:-1]) if part == "images"]
    if folders:
        parts[folders[-1]] = "labels"
    return Path(*parts).with_suffix(".txt")


@dataclass(frozen=True)
class _YoloMask:
    """Reader of one image's mask: small objects lie over large ones."""

    image: FileRef
    labels: Path
    values: tuple[int, ...]  # of each class number

    def __call__(self) -> Mask:
        width, height = image_size(self.image.read(), str(self.image))
        require_mask_size(height, width, self.image)
        polygons = [
            (polygon * (width, height), self.values[number])
            for number, polygon in _read_polygons(self.labels, len(self.values))
        ]
        with hold_memory(3 * width * height):
            mask = np.zeros((height, width), np.uint8)
            for polygon, value in sorted(polygons, key=lambda entry: -polygon_area(entry[0])):
                mask[fill_polygon(polygon, height, width)] = value
        return mask


def _read_data_file(path: Path) -> _DataFile:
    advice = "name a data.yaml of YOLO, and correct such an entry"
    try:
        content: Any = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not valid YAML ({' '.join(str(error).split())})", advice) from None
    return validated(_DataFile, content, path, advice)


def _images_of_split(path: Path, content: _DataFile, split: str | None) -> list[tuple[str, Path]]:
    """Names and files of the images of a split."""
    root = path.parent / expand_home(content.get("path") or "")
    folders: dict[str, tuple[str, ...]] = {}
    for name in _SPLITS:
        entry: str | list[str] | None = content.get(name)  # type: ignore[assignment]
        if entry:
            folders[name] = (entry,) if isinstance(entry, str) else tuple(entry)
    if not folders:
        raise DataError(f"{path}: names no folder of images", "write for example train: images/train")
    if split is None and len(set(folders.values())) > 1:
        raise DataError(f"{path}: holds the splits {', '.join(folders)}", "name one of them with {split}")
    if split is not None and split not in folders:
        raise DataError(f"{path}: {unknown_name('split', split, folders)}")
    images: list[tuple[str, Path]] = []
    for entry in folders[split or next(iter(folders))]:
        images += _images_in(root / expand_home(entry), path)
    return images


def _images_in(place: Path, path: Path) -> list[tuple[str, Path]]:
    """Names and files of the images in a folder, or in a text file that lists them."""
    if is_file(place):
        lines = [line.strip() for line in read_text(place).splitlines()]
        lines = [line for line in lines if PurePosixPath(line).suffix.lower() in IMAGE_SUFFIXES]
        return [(str(PurePosixPath(line.replace("\\", "/"))), place.parent / line) for line in lines]
    if not _is_folder(place):
        raise DataError(f"{path}: its folder of images {place} does not exist", "correct the entry, or the path above")
    return [(str(name), file.path) for name, file in FileIndex(place).files.items()]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no file system allows this name
        return False


def _read_lines(path: Path) -> list[tuple[str, list[str]]]:
    """Lines of a label file with their places, divided into words."""
    try:
        text = read_file(path, _MAX_LABEL_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error})", "replace the file or remove it") from error
    return [(f"{path}:{number}", line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _read_class_numbers(path: Path, num_classes: int) -> set[int]:
    return {_class_number(words[0], num_classes, place) for place, words in _read_lines(path)}


def _read_polygons(path: Path, num_classes: int) -> list[tuple[int, Polygon]]:
    polygons = []
    for place, words in _read_lines(path):
        number = _class_number(words[0], num_classes, place)
        if len(words) == 5:
            raise DataError(f"{place}: is a box, not a polygon", "export polygons: three corners or more a line")
        if len(words) < 7 or len(words) % 2 == 0:
            raise DataError(f"{place}: has {len(words) - 1} numbers, not x and y of three corners or more", _CORRECT)
        polygons.append((number, _coordinates(words[1:], place).reshape(-1, 2)))
    return polygons


def _class_number(word: str, num_classes: int, place: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) < 10 and int(word) < num_classes):
        raise DataError(f"{place}: {word[:20]!r} is not the number of one of the {num_classes} classes", _CORRECT)
    return int(word)


def _coordinates(words: Sequence[str], place: str) -> Polygon:
    try:
        values = np.array(words, np.float64)
    except ValueError as error:
        raise DataError(f"{place}: has coordinates that are no numbers ({error})", _CORRECT) from None
    if not np.all((values >= -_TOLERANCE) & (values <= 1 + _TOLERANCE)):  # false for NaN too
        raise DataError(f"{place}: has coordinates that are not from 0 to 1", "divide them by the image's size")
    return values
