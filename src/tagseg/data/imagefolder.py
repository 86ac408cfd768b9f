"""Hugging Face's imagefolder with masks: a metadata.jsonl of images and masks, and the names of the masks' values.

    id2label.json              {"0": "background", "1": "cat", ...}, in this folder or the one above
    metadata.jsonl             {"file_name": "1.jpg", "mask_file_name": "masks/1.png"}, one object a line

The value 255 is ignored. A line without a mask is left out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tagseg._json import parse_json, validated
from tagseg.data.annotations import IGNORED_NAME, AnnotatedImage, Annotations, require_class_names
from tagseg.data.files import FileIndex, FileRef, is_file, read_text
from tagseg.data.masks import MaskFile
from tagseg.errors import DataError

METADATA, CLASS_NAMES = "metadata.jsonl", "id2label.json"
IMAGE_KEYS, MASK_KEYS = ("file_name", "image_file_name"), ("mask_file_name", "annotation_file_name")


def find_image_folder(root: Path, split: str | None = None) -> Path | None:
    """Find the metadata.jsonl of a folder, or of a split below it, whose masks' values are named."""
    folders = [root / split, root] if split else [root]
    for folder in folders:
        if is_file(folder / METADATA) and _class_names_file(folder):
            return folder / METADATA
    return None


def read_image_folder(path: Path, images: Sequence[Path] = ()) -> Annotations:
    """Read the images with a mask; their labels are the classes in it.

    Args:
        path: The metadata.jsonl.
        images: Folders and zips that hold the images, if not beside the file.
    """
    names_file = _class_names_file(path.parent)
    if names_file is None:
        raise DataError(f"{path}: has no {CLASS_NAMES} beside it", 'name the classes: {{"0": "background", ...}}')
    classes = _read_class_names(names_file)
    indexes = [FileIndex(folder) for folder in images or [path.parent]]
    annotated = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            location = f"{path}:{number}"
            entry = validated(dict[str, Any], parse_json(line, location), location, "write one object per line")
            image = _text_of(entry, IMAGE_KEYS, location)
            mask = _text_of(entry, MASK_KEYS, location)
            if image is None:
                raise DataError(f"{location}: has no {IMAGE_KEYS[0]}", "name the image")
            if mask is not None:
                file = next((file for index in indexes if (file := index.find(image))), None)
                mask_file = MaskFile(_below(path.parent, mask, location))
                annotated.append(AnnotatedImage(image, file, None, mask_file, location))
    return Annotations(str(path), classes, tuple(annotated))


def _class_names_file(folder: Path) -> Path | None:
    return next((file for place in (folder, folder.parent) if is_file(file := place / CLASS_NAMES)), None)


def _read_class_names(path: Path) -> tuple[str, ...]:
    """Names of the values from 1."""
    advice = "name each value of the masks from 0, the background"
    content = validated(dict[str, str], parse_json(read_text(path), path, advice), path, advice)
    names = {int(value): name for value, name in content.items() if value.isascii() and value.isdecimal()}
    if len(names) < len(content) or sorted(names) != list(range(len(names))):
        raise DataError(f"{path}: the values have gaps or are no numbers", advice)
    classes = tuple(names[value] for value in range(1, len(names)))
    require_class_names(classes, path)
    if IGNORED_NAME in classes:
        raise DataError(f"{path}: names the class {IGNORED_NAME!r}", "ignored pixels have the value 255 and no name")
    return classes


def _text_of(entry: dict[str, Any], keys: Sequence[str], location: str) -> str | None:
    key = next((key for key in keys if entry.get(key) is not None), None)
    if key is None:
        return None
    if not isinstance(text := entry[key], str) or not text:
        raise DataError(f"{location}: {key} is not the name of a file", "write a text")
    return text


def _below(folder: Path, name: str, location: str) -> FileRef:
    if not is_file(folder / name):
        raise DataError(f"{location}: the mask {name} does not exist", "correct the name, or remove it")
    return FileRef(folder / name)
