"""CVAT's format "Segmentation mask": colored masks in a folder or zip, whose colors labelmap.txt names.

    labelmap.txt                           name:red,green,blue:: for each class, the background included
    SegmentationClass/ID.png               masks
    ImageSets/Segmentation/default.txt     image IDs; the file is named like the subset
    JPEGImages/ID.jpg                      images, unless they are elsewhere

An image that is listed without a mask is left out: nobody has annotated it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from tagseg.data.annotations import AnnotatedImage, Annotations, class_values, require_class_names
from tagseg.data.files import FileIndex, FileRef, is_file
from tagseg.data.images import IMAGE_SUFFIXES, open_image, strip_image_suffix
from tagseg.data.limits import hold_file, hold_memory, require_size
from tagseg.data.masks import Mask
from tagseg.errors import DataError, unknown_name

LABEL_MAP = "labelmap.txt"
BACKGROUND_NAME = "background"
_MASKS, _LISTS, _IMAGES = "SegmentationClass", "ImageSets/Segmentation", "JPEGImages"
_MAX_TEXT_BYTES = 2**26
_BYTES_PER_PIXEL = 24  # at the peak of decoding: the image, its colors as numbers, and their places in a sorted list
_CORRECT = "correct the line"


def is_cvat(path: Path) -> bool:
    """Whether a folder or zip has a labelmap.txt and masks."""
    if path.is_dir():
        return is_file(path / LABEL_MAP) and (path / _MASKS).is_dir()
    return _find(_index(path), LABEL_MAP) is not None


def read_cvat(path: Path, split: str | None = None, images: Sequence[Path] = ()) -> Annotations:
    """Read the images of a subset; their labels are the classes in their masks.

    Args:
        path: Folder or zip.
        split: Subset; needed if there are several.
        images: Folders and zips that hold the images; if empty, JPEGImages.
    """
    index = _index(path)
    label_map = _find(index, LABEL_MAP)
    if label_map is None:
        raise DataError(f"{path}: has no {LABEL_MAP}", "export it again as CVAT's Segmentation mask 1.1")
    colors = _read_label_map(label_map)
    names = [name for name in colors if name != BACKGROUND_NAME]
    require_class_names(names, label_map)
    classes, values = class_values(names)
    value_of = dict(zip(names, values, strict=True))
    table = {color: value_of.get(name, 0) for name, color in colors.items()}
    masks = {_id_below(name, _MASKS): file for name, file in index.files.items() if _is_below(name, _MASKS)}
    folders = [FileIndex(folder) for folder in images]
    own_images = {_id_below(name, _IMAGES): file for name, file in index.files.items() if _is_below(name, _IMAGES)}
    annotated = []
    for image_id in _read_subset(index, split) or masks:
        if image_id in masks:
            file = next((file for folder in folders if (file := folder.find(image_id))), own_images.get(image_id))
            mask = _CvatMask(masks[image_id], table)
            annotated.append(AnnotatedImage(image_id, file, None, mask, str(masks[image_id])))
    return Annotations(str(path), classes, tuple(annotated))


@dataclass(frozen=True)
class _CvatMask:
    """Reader of one image's mask."""

    file: FileRef
    values: dict[int, int]  # by color

    def __call__(self) -> Mask:
        colors, places = self._colors()
        values = [self.values.get(color) for color in colors.tolist()]
        if None in values:
            color = int(colors[values.index(None)])
            raise DataError(
                f"{self.file}: has the color {','.join(map(str, color.to_bytes(3)))}, which {LABEL_MAP} does not name",
                f"name it in {LABEL_MAP}, or export the masks again",
            )
        mask: Mask = np.array(values, np.uint8)[places]
        return mask

    def _colors(self) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
        """Colors that occur, as numbers, and the place of each pixel's color among them, [H, W]."""
        with hold_file(self.file.size()):
            data = self.file.read()
            try:
                image = open_image(data, ("PNG",))
                with hold_memory(image.width * image.height * _BYTES_PER_PIXEL):
                    red, green, blue = np.moveaxis(np.array(image.convert("RGB")).astype(np.int32), 2, 0)
                    numbers = red << 16 | green << 8 | blue
                    colors, places = np.unique(numbers, return_inverse=True)
                    return colors, places.reshape(numbers.shape)
            except Exception as error:  # PIL's decoders raise errors of many types on damaged files.
                raise DataError(f"{self.file}: is not a mask that can be read", "export it again") from error


def _index(path: Path) -> FileIndex:
    return FileIndex(path, suffixes=IMAGE_SUFFIXES | {".txt"})


def _find(index: FileIndex, name: str) -> FileRef | None:
    return index.files.get(PurePosixPath(name))


def _is_below(name: PurePosixPath, folder: str) -> bool:
    return name.parts[0] == folder and len(name.parts) > 1 and name.suffix.lower() in IMAGE_SUFFIXES


def _id_below(name: PurePosixPath, folder: str) -> str:
    return str(strip_image_suffix(name.relative_to(folder))) if _is_below(name, folder) else ""


def _read_label_map(file: FileRef) -> dict[str, int]:
    """Colors of the classes as numbers, in the order of the file."""
    colors: dict[str, int] = {}
    for number, line in enumerate(_read_lines(file), start=1):
        if not line or line.startswith("#"):
            continue
        name, *fields = line.split(":")
        channels = fields[0].split(",") if fields else []
        if len(channels) != 3 or not all(
            channel.strip().isdecimal() and channel.isascii() and len(channel) < 5 and int(channel) < 256
            for channel in channels
        ):
            raise DataError(f"{file}:{number}: is not a class and its color", f"{_CORRECT}: name:red,green,blue::")
        red, green, blue = map(int, channels)
        color = red << 16 | green << 8 | blue
        if name in colors or color in colors.values():
            repeated = "class" if name in colors else "color"
            raise DataError(f"{file}:{number}: the {repeated} is in another line too", _CORRECT)
        colors[name] = color
    return colors


def _read_subset(index: FileIndex, split: str | None) -> list[str]:
    """Image IDs of a subset."""
    lists = {name.stem: file for name, file in index.files.items() if str(name.parent) == _LISTS}
    if split is None and len(lists) > 1:
        raise DataError(f"{index.path}: holds the splits {', '.join(lists)}", "name one of them with {split}")
    if split is not None and split not in lists:
        raise DataError(f"{index.path}: {unknown_name('split', split, lists)}")
    return [line for name in ([split] if split else lists) for line in _read_lines(lists[name]) if line]


def _read_lines(file: FileRef) -> list[str]:
    require_size(file, file.size(), _MAX_TEXT_BYTES)
    try:
        return [line.strip() for line in file.read().decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: cannot be read as text ({error})", "save it as UTF-8") from error
