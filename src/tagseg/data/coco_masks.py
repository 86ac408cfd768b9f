"""COCO's instances as masks, for evaluation: polygons and run lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tagseg.data.mask_dataset import IGNORE, Mask
from tagseg.errors import DataError

_ENLARGED = 5  # odd, so that a pixel has a centre


@dataclass(frozen=True)
class CocoMask:
    """The mask of one image: larger objects lie under smaller ones, and crowds that no object covers are ignored."""

    name: str
    height: int
    width: int
    annotations: Sequence[Mapping[str, Any]]
    values: Mapping[int, int]  # category number -> mask value

    def __call__(self) -> Mask:
        mask = np.zeros((self.height, self.width), np.uint8)
        for annotation in sorted(self.annotations, key=_depth):
            value = IGNORE if annotation.get("iscrowd") else self.values[annotation["category_id"]]
            mask[self._region(annotation)] = value
        return mask

    def _region(self, annotation: Mapping[str, Any]) -> NDArray[np.bool_]:
        shape = annotation.get("segmentation")
        if isinstance(shape, list):
            return self._polygons(shape)
        counts = shape.get("counts") if isinstance(shape, Mapping) else None
        if isinstance(counts, list):
            return self._runs(counts, annotation)
        if isinstance(counts, str | bytes):
            return self._compressed(counts)
        raise DataError(
            f"{self.name}: annotation {annotation.get('id')} has neither polygons nor run lengths; remove it"
        )

    def _polygons(self, polygons: Sequence[Sequence[float]]) -> NDArray[np.bool_]:
        # PIL also fills the pixels that an outline touches: draw enlarged, and look only at the pixels' centres.
        canvas = Image.new("1", (self.width * _ENLARGED, self.height * _ENLARGED))
        pen = ImageDraw.Draw(canvas)
        for polygon in polygons:
            if len(polygon) >= 6:  # fewer than three corners enclose nothing
                # COCO puts whole numbers on pixel corners, PIL on pixel centres.
                pen.polygon([coordinate * _ENLARGED - 0.5 for coordinate in polygon], fill=1)
        return np.asarray(canvas)[_ENLARGED // 2 :: _ENLARGED, _ENLARGED // 2 :: _ENLARGED]

    def _runs(self, counts: Sequence[int], annotation: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Lengths of alternating runs, background first, down the columns."""
        if sum(counts) != self.height * self.width:
            raise DataError(
                f"{self.name}: the run lengths of annotation {annotation.get('id')} cover {sum(counts)} pixels, "
                f"not {self.height} x {self.width}; correct or remove it"
            )
        inside = np.arange(len(counts)) % 2 == 1
        return np.repeat(inside, counts).reshape(self.width, self.height).T

    def _compressed(self, counts: str | bytes) -> NDArray[np.bool_]:
        try:
            from pycocotools import mask as tools
        except ImportError as error:
            raise DataError(
                f"{self.name}: compressed run lengths need pycocotools; install it with: pip install 'tagseg[coco]'"
            ) from error
        decoded = tools.decode({"size": [self.height, self.width], "counts": counts})
        return np.asarray(decoded, bool)


def _depth(annotation: Mapping[str, Any]) -> tuple[bool, float]:
    return not annotation.get("iscrowd"), -float(annotation.get("area", 0))
