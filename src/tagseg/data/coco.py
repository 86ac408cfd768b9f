"""COCO's instances JSON: images with image-level labels, and masks for evaluation.

A category called "ignored" stands for pixels that are left out; it is no class.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator
from typing_extensions import TypedDict  # that of pydantic before Python 3.12

from tagseg._json import parse_json, validated
from tagseg.data.annotations import IGNORED_NAME, MAX_SIDE, require_mask_size
from tagseg.data.files import FileIndex, read_text
from tagseg.data.masks import IGNORE_LABEL, Mask, MaskReaders
from tagseg.data.records import Record, Records
from tagseg.errors import DataError


def _require_id(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a number or a text")
    return value


def _require_number(value: Any) -> int | str:
    """Require the ID of a category, by which classes are ordered, to be a number."""
    number = _require_id(value)
    int(number)
    return number


_Id = Annotated[int | str, PlainValidator(_require_id)]
_Side = Annotated[float, Field(ge=1, le=MAX_SIDE)]


class _Image(TypedDict):
    id: _Id
    file_name: str
    width: _Side
    height: _Side


class _Category(TypedDict):
    id: Annotated[int | str, PlainValidator(_require_number)]
    name: str


class _Annotation(TypedDict):
    image_id: _Id
    category_id: _Id
    id: NotRequired[Any]
    segmentation: NotRequired[Any]  # checked where it is decoded
    area: NotRequired[float | None]
    iscrowd: NotRequired[bool | int | None]


class _Instances(TypedDict):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


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
    names = _category_names(content)
    labels: dict[int | str, set[str]] = defaultdict(set)
    for annotation in content["annotations"]:
        labels[annotation["image_id"]].add(names[annotation["category_id"]])
    known_names = [name for name in names.values() if name != IGNORED_NAME]
    indexes = [FileIndex(folder) for folder in images or _default_image_paths(path)]
    records = []
    for image in content["images"]:
        file = next((file for index in indexes if (file := index.find(image["file_name"]))), None)
        location = f"{path} (image {image['id']})"
        records.append(Record(image["file_name"], frozenset(labels[image["id"]] - {IGNORED_NAME}), file, location))
    return Records.merge(records, known_names if classes is None else classes)


def coco_masks(path: Path, records: Records) -> MaskReaders:
    """Readers of the masks of an instances file, by image ID.

    Args:
        path: The JSON file.
        records: The file's records; mask values follow the order of their classes.
    """
    import_pycocotools(path)  # report a missing extra now, not when the first mask is read
    content = _read_instances(path)
    value_of = {name: value for value, name in enumerate(records.classes, start=1)}
    value_of.setdefault(IGNORED_NAME, IGNORE_LABEL)
    values = {category: value_of[name] for category, name in _category_names(content).items() if name in value_of}
    images = {image["file_name"]: image for image in reversed(content["images"])}
    file_names = {image["id"]: image["file_name"] for image in content["images"]}
    annotations: dict[str, list[_Annotation]] = defaultdict(list)
    for annotation in content["annotations"]:
        annotations[file_names[annotation["image_id"]]].append(annotation)
    readers: dict[str, Callable[[], Mask]] = {}
    for image_id, record in zip(records.image_ids, records.records, strict=True):
        height, width = images[record.image]["height"], images[record.image]["width"]
        readers[image_id] = _CocoMask(record.location, int(height), int(width), annotations[record.image], values)
    return readers


@dataclass(frozen=True)
class _CocoMask:
    """Reader of one image's mask: small objects lie over large ones; a crowd is ignored where no object covers it."""

    location: str
    height: int
    width: int
    annotations: Sequence[_Annotation]
    values: Mapping[int | str, int]  # category ID -> mask value

    def __call__(self) -> Mask:
        require_mask_size(self.height, self.width, self.location)
        mask = np.zeros((self.height, self.width), np.uint8)
        for annotation in sorted(self.annotations, key=_drawing_order):
            value = IGNORE_LABEL if annotation.get("iscrowd") else self.values[annotation["category_id"]]
            mask[self._decode(annotation)] = value
        return mask

    def _decode(self, annotation: _Annotation) -> NDArray[np.bool_]:
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
        tools = import_pycocotools(self.location)
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
        tools = import_pycocotools(self.location)
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


def import_pycocotools(location: object) -> Any:
    """Functions of pycocotools for run lengths; a `DataError` about a file if they are not installed."""
    try:
        from pycocotools import mask
    except ImportError as error:
        raise DataError(
            f"{location}: COCO's masks need pycocotools", "install it with: pip install 'tagseg[coco]'"
        ) from error
    return mask


def _drawing_order(annotation: _Annotation) -> tuple[bool, float]:
    return not annotation.get("iscrowd"), -(annotation.get("area") or 0.0)


def _read_instances(path: Path) -> _Instances:
    """Read an instances file and check its fields and references."""
    content = parse_json(read_text(path), path, "download it again")
    content = validated(_Instances, content, path, "name a COCO instances file, and correct or remove such an entry")
    image_ids = {image["id"] for image in content["images"]}
    category_ids = {category["id"] for category in content["categories"]}
    for number, annotation in enumerate(content["annotations"]):
        for key, value, known in (
            ("image_id", annotation["image_id"], image_ids),
            ("category_id", annotation["category_id"], category_ids),
        ):
            if value not in known:
                raise DataError(
                    f"{path}: annotations[{number}].{key}: {value!r} is not described in the file",
                    "correct or remove it",
                )
    return content


def _category_names(content: _Instances) -> dict[int | str, str]:
    """Category ID -> name, by ascending ID; the IDs have gaps."""
    categories = sorted(content["categories"], key=lambda category: int(category["id"]))
    return {category["id"]: category["name"] for category in categories}


def _default_image_paths(path: Path) -> list[Path]:
    images = path.parent.parent / path.stem.removeprefix("instances_")
    return [images, path.parent] if images.is_dir() else [path.parent]
