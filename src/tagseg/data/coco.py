"""COCO's instances JSON: images with image-level labels, and masks for evaluation."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagseg.data.files import FileIndex, read_text
from tagseg.data.masks import IGNORE_LABEL, Mask, MaskReaders
from tagseg.data.records import Record, Records
from tagseg.errors import DataError

_MAX_SIDE = 100_000  # pixels; larger images cannot be decoded
_KEYS = {"images": ("id", "file_name", "width", "height"), "annotations": (), "categories": ("id", "name")}
_TYPES = {"id": (int, str), "file_name": (str,), "name": (str,), "width": (int, float), "height": (int, float)}


def find_coco(root: Path, split: str | None) -> Path | None:
    """Find the instances file of a COCO folder (annotations/instances_SPLIT.json); None if this is not COCO."""
    files = sorted((root / "annotations").glob("instances_*.json"))
    splits = [file.stem.removeprefix("instances_") for file in files]
    if not files:
        return None
    if split not in splits:
        raise DataError(f"{root}: holds COCO's splits {', '.join(splits)}", "name one of them with {split}")
    return files[splits.index(split)]


def read_coco(path: Path, *, images: Sequence[Path] = (), classes: Sequence[str] | None = None) -> Records:
    """Read the images of an instances file; an image's labels are the categories of its annotations.

    Args:
        path: The JSON file.
        images: Folders and zips that hold the images; if empty, the JSON's folder and, for
            annotations/instances_SPLIT.json, the folder SPLIT beside annotations.
        classes: Class names in their order; None means all categories by ascending ID.
    """
    content = _read_instances(path)
    names = _category_names(path, content)
    labels: dict[int | str, set[str]] = defaultdict(set)
    for annotation in content["annotations"]:
        labels[annotation["image_id"]].add(names[annotation["category_id"]])
    indexes = [FileIndex(folder) for folder in images or _default_image_paths(path)]
    records = []
    for image in content["images"]:
        file = next((file for index in indexes if (file := index.find(image["file_name"]))), None)
        location = f"{path} (image {image['id']})"
        records.append(Record(image["file_name"], frozenset(labels[image["id"]]), file, location))
    return Records.merge(records, list(names.values()) if classes is None else classes)


def coco_masks(path: Path, records: Records) -> MaskReaders:
    """Readers of the masks of an instances file, by image ID.

    Args:
        path: The JSON file.
        records: The file's records; mask values follow the order of their classes.
    """
    _import_pycocotools(path)  # report a missing extra now, not when the first mask is read
    content = _read_instances(path)
    value_of = {name: value for value, name in enumerate(records.classes, start=1)}
    values = {category: value_of[name] for category, name in _category_names(path, content).items() if name in value_of}
    images = {image["file_name"]: image for image in reversed(content["images"])}
    file_names = {image["id"]: image["file_name"] for image in content["images"]}
    annotations: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for annotation in content["annotations"]:
        annotations[file_names[annotation["image_id"]]].append(annotation)
    readers: dict[str, Callable[[], Mask]] = {}
    for image_id, record in zip(records.image_ids, records.records, strict=True):
        height, width = images[record.image]["height"], images[record.image]["width"]
        if not (1 <= height <= _MAX_SIDE and 1 <= width <= _MAX_SIDE):
            raise DataError(f"{record.location}: has the size {width} x {height}", "correct or remove the entry")
        readers[image_id] = _CocoMask(record.location, int(height), int(width), annotations[record.image], values)
    return readers


@dataclass(frozen=True)
class _CocoMask:
    """Reader of one image's mask: small objects lie over large ones; a crowd is ignored where no object covers it."""

    location: str
    height: int
    width: int
    annotations: Sequence[Mapping[str, Any]]
    values: Mapping[int | str, int]  # category ID -> mask value

    def __call__(self) -> Mask:
        mask = np.zeros((self.height, self.width), np.uint8)
        for annotation in sorted(self.annotations, key=_drawing_order):
            value = IGNORE_LABEL if annotation.get("iscrowd") else self.values[annotation["category_id"]]
            mask[self._decode(annotation)] = value
        return mask

    def _decode(self, annotation: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Decode an annotation's polygons or run lengths, [H, W]."""
        name = f"{self.location}: annotation {annotation.get('id')}"
        segmentation = annotation.get("segmentation")
        counts = segmentation.get("counts") if isinstance(segmentation, dict) else None
        try:
            if isinstance(segmentation, list):
                return self._decode_polygons(segmentation)
            if isinstance(counts, list | str | bytes):
                return self._decode_run_lengths(counts)
        except Exception as error:  # pycocotools raises errors of many types, Exception itself among them
            raise DataError(f"{name} cannot be decoded ({error})", "correct or remove it") from error
        raise DataError(f"{name} has neither polygons nor run lengths", "remove it")

    def _decode_polygons(self, polygons: Sequence[Sequence[float]]) -> NDArray[np.bool_]:
        tools = _import_pycocotools(self.location)
        side = max(self.height, self.width)
        # Fewer than three corners enclose no pixel, and pycocotools would take four numbers for a box.
        polygons = [polygon for polygon in polygons if len(polygon) >= 6]
        if not polygons:
            return np.zeros((self.height, self.width), bool)
        for polygon in polygons:
            # pycocotools does not check coordinates: it crashes on large ones.
            if not all(-side <= coordinate <= 2 * side for coordinate in polygon):
                raise ValueError(f"its polygon reaches far beyond the image of {self.width} x {self.height}")
        return np.asarray(tools.decode(tools.merge(tools.frPyObjects(polygons, self.height, self.width))), bool)

    def _decode_run_lengths(self, counts: list[int] | str | bytes) -> NDArray[np.bool_]:
        tools = _import_pycocotools(self.location)
        encoded: Any = {"size": [self.height, self.width], "counts": counts}
        if isinstance(counts, list):
            if sum(counts) != self.height * self.width or min(counts) < 0:
                raise ValueError(f"its run lengths cover {sum(counts)} pixels, not {self.height} x {self.width}")
            encoded = tools.frPyObjects(encoded, self.height, self.width)
        mask = tools.decode(encoded)
        # pycocotools leaves pixels uninitialized that compressed run lengths do not cover.
        if mask.sum() != tools.area(encoded):
            raise ValueError(f"its run lengths do not cover {self.height} x {self.width} pixels")
        return np.asarray(mask, bool)


def _import_pycocotools(location: object) -> Any:
    try:
        from pycocotools import mask
    except ImportError as error:
        raise DataError(
            f"{location}: reading COCO's masks needs pycocotools", "install it with: pip install 'tagseg[coco]'"
        ) from error
    return mask


def _drawing_order(annotation: Mapping[str, Any]) -> tuple[bool, float]:
    area = annotation.get("area")
    return not annotation.get("iscrowd"), -float(area) if isinstance(area, int | float) else 0.0


def _read_instances(path: Path) -> dict[str, Any]:
    """Read an instances file and check its fields and references."""
    try:
        content: dict[str, Any] = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is not valid JSON ({error})", "download it again") from error
    for section, keys in _KEYS.items():
        entries = content.get(section) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise DataError(f"{path}: has no {section!r}", "name a COCO instances file")
        singular = section.removesuffix("s") if section != "categories" else "category"
        for entry in entries:
            for key in keys:
                if not isinstance(entry.get(key), _TYPES[key]):
                    raise DataError(
                        f"{path}: {singular} {entry.get('id')} has no {key!r}", "correct or remove the entry"
                    )
    image_ids = {image["id"] for image in content["images"]}
    category_ids = {category["id"] for category in content["categories"]}
    for annotation in content["annotations"]:
        for key, known in (("image_id", image_ids), ("category_id", category_ids)):
            if not isinstance(annotation.get(key), int | str) or annotation[key] not in known:
                raise DataError(
                    f"{path}: annotation {annotation.get('id')} has the {key} {annotation.get(key)}, "
                    "which the file does not describe",
                    "correct or remove it",
                )
    return content


def _category_names(path: Path, content: dict[str, Any]) -> dict[int | str, str]:
    """Category ID -> name, by ascending ID; the IDs have gaps."""
    try:
        categories = sorted(content["categories"], key=lambda category: int(category["id"]))
    except ValueError as error:
        raise DataError(f"{path}: has a category whose ID is not a number ({error})", "number them") from error
    return {category["id"]: category["name"] for category in categories}


def _default_image_paths(path: Path) -> list[Path]:
    images = path.parent.parent / path.stem.removeprefix("instances_")
    return [images, path.parent] if images.is_dir() else [path.parent]
