"""What a model says of one image, and how to keep it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagseg.data.images import Pixels
from tagseg.predict.overlay import blend, reduce, with_legend
from tagseg.predict.palette import save_indexed
from tagseg.predict.settings import InferenceSettings
from tagseg.predict.tiles import Mask


@dataclass(frozen=True, eq=False)
class Prediction:
    """An image's mask, its classes and their scores.

    Attributes:
        name: the image's name.
        path: its file, if it has one.
        mask: 0 for the background, k for the k-th class, [H, W]; uint8, or uint16 above 255 classes.
        scores: each class's score, after the sigmoid; the largest over scales, flips and tiles.
        image: the pixels that were segmented, [H, W, 3].
        model: the model's name, method and backbone.
        protocol: `predicted-tags` where the scores decided which classes are allowed, `true-tags` where the caller did.
        settings: scales, thresholds and what they were chosen from, as used for this image.
        crf: whether a dense CRF refined the masks.
        kept: the classes that were allowed, counted from 0 without the background.
    """

    name: str
    path: str | None
    mask: Mask
    scores: dict[str, float]
    image: Pixels = field(repr=False)
    model: Mapping[str, str]
    protocol: str
    settings: InferenceSettings
    crf: bool
    kept: Sequence[int]
    _planes: NDArray[np.float32] | None = field(repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes that have a pixel in the mask, in the classes' order."""
        names = list(self.scores)
        return tuple(names[value - 1] for value in np.flatnonzero(np.bincount(self.mask.ravel())) if value > 0)

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """The merged masks, background first, [1 + C, H, W]; 0 for classes that were not kept.

        They sum to 1 in a pixel only after a CRF: the background is discounted, and CAM's masks are no probabilities.
        """
        if self._planes is None:
            raise ValueError(
                f"{self.name}: the masks of an image in tiles are not kept, they are large; pass probabilities=True"
            )
        full = np.zeros((1 + len(self.scores), *self.mask.shape), dtype=np.float32)
        full[[0, *(1 + k for k in self.kept)]] = self._planes
        return full

    def overlay(self, *, legend: bool = True) -> Image.Image:
        """The mask laid over the image.

        Args:
            legend: the names of the classes below; a small image is then enlarged and a large one reduced. Without
                it the overlay has the image's size.
        """
        if not legend:
            return Image.fromarray(blend(self.image, self.mask))
        blended = blend(*reduce(self.image, self.mask))
        numbers = {name: value for value, name in enumerate(self.scores, start=1)}
        return with_legend(blended, [(numbers[name], f"{name} {self.scores[name]:.0%}") for name in self.labels])

    def save(self, path: str | Path) -> None:
        """Write the mask as an indexed PNG: a pixel's value is its class, its colour is from VOC's palette."""
        save_indexed(self.mask, path)

    def summary(self) -> dict[str, Any]:
        """All but the pixels, as plain values.

        A box is [x0, y0, x1, y1] around all pixels of a class; x1 and y1 are the first column and row after it.
        """
        numbers = {name: value for value, name in enumerate(self.scores, start=1)}
        height, width = self.mask.shape
        return {
            "name": self.name,
            "path": self.path,
            "size": {"width": width, "height": height},
            "classes": [
                {"name": name, "value": numbers[name], **_extent(self.mask, numbers[name])} for name in self.labels
            ],
            "scores": self.scores,
            "protocol": self.protocol,
            "crf": self.crf,
            "settings": asdict(self.settings),
            "model": dict(self.model),
        }

    def to_json(self) -> str:
        """The summary as JSON."""
        return json.dumps(self.summary(), indent=2)


def _extent(mask: Mask, value: int) -> dict[str, Any]:
    here = mask == value
    area = int(here.sum())
    rows, columns = np.flatnonzero(here.any(1)), np.flatnonzero(here.any(0))
    box = [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]
    return {"area": area, "share": area / mask.size, "box": box}
