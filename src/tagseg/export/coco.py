"""COCO's instances JSON: one annotation for each class of an image, as run lengths or polygons.

annotations/instances_SPLIT.json      images, annotations, categories
SPLIT/ID.jpg                          images

Ignored pixels are a crowd of the category "ignored", which is listed only if there are such pixels.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagseg.data.annotations import IGNORED_NAME
from tagseg.data.coco import import_pycocotools
from tagseg.data.masks import IGNORE_LABEL
from tagseg.data.polygons import region_polygons
from tagseg.export.mask_writer import ExportedImage, ExportOptions, JsonLists, MaskWriter, to_json


class CocoWriter(MaskWriter):
    """Writer of COCO's JSON."""

    has_polygons = True

    def __init__(self, options: ExportOptions) -> None:
        super().__init__(options)
        self._split = options.split or "train"
        if not options.polygons:
            import_pycocotools("the export")  # report a missing extra before the first mask is read
        path = options.out / "annotations" / f"instances_{self._split}.json"
        self._file = JsonLists(path, '{"info": {"description": "Exported by tagseg"}, "licenses": [], "annotations": [')
        self._images: list[dict[str, Any]] = []
        self._num_annotations = 0
        self._has_ignored = False

    @property
    def image_folder(self) -> Path:
        return self.options.out / self._split

    def encode(self, image: ExportedImage) -> tuple[ExportedImage, list[dict[str, Any]]]:
        polygons = self.options.polygons
        return image, [annotate(value, image.mask == value, polygons=polygons) for value in image.values]

    def add(self, encoded: tuple[ExportedImage, list[dict[str, Any]]]) -> None:
        image, annotations = encoded
        height, width = image.mask.shape
        number = len(self._images) + 1
        self._images.append({"id": number, "file_name": image.file_name, "width": width, "height": height})
        for annotation in annotations:
            self._num_annotations += 1
            self._has_ignored |= annotation["category_id"] == IGNORE_LABEL
            self._file.add({"id": self._num_annotations, "image_id": number, **annotation})

    def finish(self) -> None:
        categories = [{"id": value, "name": name} for value, name in enumerate(self.options.classes, start=1)]
        categories += [{"id": IGNORE_LABEL, "name": IGNORED_NAME}] if self._has_ignored else []
        self._file.finish(f'\n], "images": {to_json(self._images)}, "categories": {to_json(categories)}}}\n')

    def close(self) -> None:
        self._file.close()


def annotate(value: int, region: NDArray[np.bool_], *, polygons: bool = False) -> dict[str, Any]:
    """Annotation of a class in an image, without the IDs.

    Args:
        value: Value of the class in masks.
        region: Its pixels, of which there is at least one, [H, W].
        polygons: Write polygons instead of run lengths.
    """
    rows, columns = np.flatnonzero(region.any(1)), np.flatnonzero(region.any(0))
    left, top = int(columns[0]), int(rows[0])
    return {
        "category_id": value,
        "bbox": [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top],
        "area": int(region.sum()),
        "iscrowd": int(value == IGNORE_LABEL),
        "segmentation": _polygons(region) if polygons else _run_lengths(region),
    }


def _polygons(region: NDArray[np.bool_]) -> list[list[int]]:
    return [polygon.astype(int).ravel().tolist() for polygon in region_polygons(region)]


def _run_lengths(region: NDArray[np.bool_]) -> dict[str, Any]:
    encoded = import_pycocotools("the export").encode(np.asfortranarray(region, np.uint8))
    return {"size": list(region.shape), "counts": encoded["counts"].decode()}
