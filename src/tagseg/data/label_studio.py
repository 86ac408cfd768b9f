"""Label Studio's JSON export: masks that were painted with its brush.

Of each task, the annotation that is marked as ground truth is read, or else the last one that was not cancelled; tasks
without an annotation are left out. The image of a task is looked for by the name that tagseg gave it, or by the last
part of its URL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NotRequired
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict  # that of pydantic before Python 3.12

from tagseg._json import parse_json, validated
from tagseg.data.annotations import (
    MAX_SIDE,
    AnnotatedImage,
    Annotations,
    class_values,
    require_class_names,
    require_mask_size,
)
from tagseg.data.brush_rle import decode_brush
from tagseg.data.files import FileIndex, FileRef, read_text
from tagseg.data.images import image_size
from tagseg.data.limits import hold_memory
from tagseg.data.masks import Mask
from tagseg.errors import DataError

FILE_NAME = "file_name"  # key of a task's data: the image's name, as tagseg exported it
BRUSH = "brushlabels"
_UPLOAD_HASH = 8  # digits that Label Studio puts before the name of an uploaded file, with a hyphen
_HEX_DIGITS = frozenset("0123456789abcdef")
_OTHER_SHAPES = ("polygonlabels", "rectanglelabels", "ellipselabels", "bitmasklabels")
_BYTES_PER_PIXEL = 10  # at the peak of decoding: four channels, twice, the region and the mask
_BYTES_TO_START = 1024
_ADVICE = "export the project again as JSON"
_Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class _Result(TypedDict):
    type: NotRequired[str]
    value: NotRequired[dict[str, Any]]  # checked where it is a brush's
    original_width: NotRequired[Any]
    original_height: NotRequired[Any]
    image_rotation: NotRequired[Any]


class _Annotation(TypedDict):
    result: list[_Result]
    was_cancelled: NotRequired[bool | None]
    ground_truth: NotRequired[bool | None]


class _Task(TypedDict):
    data: dict[str, Any]
    id: NotRequired[Any]
    annotations: NotRequired[list[_Annotation]]


class _Brush(TypedDict):
    rle: list[int]
    brushlabels: Annotated[list[str], Field(min_length=1)]


class _Size(TypedDict):
    original_width: _Side
    original_height: _Side


def is_json_list(path: Path) -> bool:
    """Whether a JSON file holds a list, as Label Studio's do, and not an object, as COCO's."""
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_TO_START).decode("utf-8-sig", "ignore").lstrip().startswith("[")
    except OSError:
        return False  # the reader says why


def read_label_studio(path: Path, images: Sequence[Path] = ()) -> Annotations:
    """Read the tasks of an export; their labels are those of the brush.

    Args:
        path: The JSON file.
        images: Folders and zips that hold the images; if empty, the folder of the JSON.
    """
    tasks = validated(list[_Task], parse_json(read_text(path), path, _ADVICE), path, _ADVICE)
    indexes = [FileIndex(folder) for folder in images or [path.parent]]
    task_regions: list[tuple[str, str, list[_Region]]] = []
    for number, task in enumerate(tasks, start=1):
        place = f"{path}: task {task.get('id', number)}"
        if (annotation := _chosen_annotation(task)) is not None:
            task_regions.append((_image_name(task, place, indexes), place, _regions(annotation, place)))
    names = sorted({region.label for _, _, regions in task_regions for region in regions})
    if task_regions:
        require_class_names(names, path)
    classes, values = class_values(names)
    value_of = dict(zip(names, values, strict=True))
    annotated = []
    for name, place, regions in task_regions:
        file = _find_file(name, indexes)
        mask = _BrushMask(tuple(regions), value_of, file, place)
        annotated.append(AnnotatedImage(name, file, frozenset(region.label for region in regions), mask, place))
    return Annotations(str(path), classes, tuple(annotated))


@dataclass(frozen=True)
class _Region:
    """A painted region."""

    label: str
    encoded: bytes
    height: int
    width: int


@dataclass(frozen=True)
class _BrushMask:
    """Reader of one task's mask: regions lie over those before them."""

    regions: tuple[_Region, ...]
    values: dict[str, int]  # by label
    image: FileRef | None  # whose size an image without regions has
    place: str

    def __call__(self) -> Mask:
        if self.regions:
            height, width = self.regions[0].height, self.regions[0].width
        elif self.image is not None:
            width, height = image_size(self.image.read(), str(self.image))
        else:
            raise DataError(f"{self.place}: has no regions and no image that tells its size", "name it with {images}")
        require_mask_size(height, width, self.place)
        mask = np.zeros((height, width), np.uint8)
        for number, region in enumerate(self.regions, start=1):
            if (region.height, region.width) != (height, width):
                raise DataError(f"{self.place}: its regions are of images of different sizes", _ADVICE)
            with hold_memory(height * width * _BYTES_PER_PIXEL):
                try:
                    mask[decode_brush(region.encoded, height, width)] = self.values[region.label]
                except ValueError as error:
                    raise DataError(
                        f"{self.place}: the run lengths of region {number} cannot be decoded: {error}", _ADVICE
                    ) from None
        return mask


def _chosen_annotation(task: _Task) -> _Annotation | None:
    annotations = [entry for entry in task.get("annotations", ()) if not entry.get("was_cancelled")]
    return next((entry for entry in annotations if entry.get("ground_truth")), annotations[-1] if annotations else None)


def _regions(annotation: _Annotation, place: str) -> list[_Region]:
    """Regions of an annotation; what is no region, such as a choice, is left out."""
    regions = []
    for number, result in enumerate(annotation["result"], start=1):
        kind, where = result.get("type"), f"{place}: region {number}"
        if kind in _OTHER_SHAPES:
            raise DataError(f"{where} is of the type {kind}, which is not read", "paint it with the brush")
        if kind != BRUSH:
            continue
        if result.get("image_rotation"):
            raise DataError(f"{where} is of a rotated image", "rotate the image file instead, and annotate it again")
        brush, size = validated(_Brush, result.get("value"), where, _ADVICE), validated(_Size, result, where, _ADVICE)
        try:
            encoded = bytes(brush["rle"])
        except ValueError:
            raise DataError(f"{where} has run lengths that are no bytes", _ADVICE) from None
        regions.append(_Region(brush["brushlabels"][0], encoded, size["original_height"], size["original_width"]))
    return regions


def _image_name(task: _Task, place: str, indexes: Sequence[FileIndex]) -> str:
    """Name of a task's image: that of tagseg's export, or the end of its URL without the hash of an upload."""
    data = task["data"]
    if isinstance(name := data.get(FILE_NAME), str) and name:
        return name
    url = next((value for value in (data.get("image"), *data.values()) if isinstance(value, str) and value), None)
    if url is None:
        raise DataError(f"{place}: names no image", "export tasks of images")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise DataError(f"{place}: names an image by {url}, which is not a URL ({error})", _ADVICE) from None
    path = PurePosixPath(parse_qs(parts.query).get("d", [""])[0] or unquote(parts.path))
    name = str(path).lstrip("/") if parts.query and not parts.scheme else path.name
    digits, _, rest = path.name.partition("-")
    is_upload = len(digits) == _UPLOAD_HASH and _HEX_DIGITS.issuperset(digits)
    return rest if is_upload and rest and _find_file(name, indexes) is None else name


def _find_file(name: str, indexes: Sequence[FileIndex]) -> FileRef | None:
    return next((file for index in indexes if (file := index.find(name))), None)
