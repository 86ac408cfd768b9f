"""Prediction of a model for one image, how to show it, and the files that are written for it."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tagseg.data.images import Pixels
from tagseg.predict.confidence import Confidence, bands, class_presence, mean_confidence, nearest_threshold, uncertainty
from tagseg.predict.engine import PREDICTED_TAGS
from tagseg.predict.render import DEFAULT_ALPHA, add_legend, blend, check_alpha, mask_image, save_mask
from tagseg.predict.resize import ClassMask, resize_masks
from tagseg.predict.settings import InferenceSettings

Format = Literal["png", "parquet"]
FORMATS: tuple[Format, ...] = ("png", "parquet")
_MAX_JPEG_SIDE = 65_500  # longer overlays are reduced
_MAX_SHOWN_SIDE = 2048


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Mask of an image, with its classes and their scores.

    Attributes:
        name: Name of the image.
        path: Its file, if it has one.
        mask: 0 for the background, k for the k-th class, [H, W]; uint8, or uint16 above 255 classes.
        scores: Score of each class, after the sigmoid; the highest over scales, flips and tiles.
        image: Pixels that were segmented, [H, W, 3]; a file of more than 67 megapixels is reduced, unless the size is
            `native`.
        model: Name, method and backbone of the model.
        protocol: `predicted-tags` if the scores decided which classes are allowed, `true-tags` if the caller did.
        settings: Scales, thresholds and what they were chosen on, as used for this image.
        crf: Whether a dense CRF refined the masks.
        class_indices: Classes that were allowed, counted from 0 without the background.
    """

    name: str
    path: str | None
    mask: ClassMask
    scores: dict[str, float]
    image: Pixels
    model: Mapping[str, str]
    protocol: str
    settings: InferenceSettings
    crf: bool
    class_indices: Sequence[int]
    _probs: Tensor | None = field(repr=False)
    _confidence: Confidence = field(repr=False)

    def __repr__(self) -> str:
        height, width = self.mask.shape
        classes = ", ".join(f"{name} {self.scores[name]:.0%}" for name in self.labels) or "no known class found"
        return f"Prediction({self.name!r}, {width} x {height}: {classes})"

    def _repr_png_(self) -> bytes:
        """Overlay that notebooks show, reduced to a size that screens show."""
        buffer = io.BytesIO()
        overlay = self.overlay(legend=True)
        overlay.thumbnail((_MAX_SHOWN_SIDE, _MAX_SHOWN_SIDE))
        overlay.save(buffer, "PNG")
        return buffer.getvalue()

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes that have a pixel in the mask, in the classes' order."""
        names = list(self.scores)
        return tuple(
            names[k]
            for k in sorted(self.class_indices)
            if any((self.mask[rows] == k + 1).any() for rows in bands(self.mask))
        )

    @property
    def allowed_classes(self) -> tuple[str, ...]:
        """Names of the classes that were allowed, in the classes' order."""
        names = list(self.scores)
        return tuple(names[k] for k in sorted(self.class_indices))

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """Merged masks, background first, [1 + C, H, W]; 0 for classes that were not kept.

        They sum to 1 in a pixel only after a CRF: the background is discounted, and CAM's masks are no probabilities.
        """
        if self._probs is None:
            raise ValueError(f"{self.name}: the merged masks of a tiled image are large; pass probabilities=True")
        height, width = self.mask.shape
        full = np.zeros((1 + len(self.scores), height, width), dtype=np.float32)
        full[[0, *(1 + k for k in self.class_indices)]] = resize_masks(self._probs[None], (height, width))[0].numpy()
        return full

    @property
    def confidence(self) -> NDArray[np.float32]:
        """Probability of each pixel's class, in steps of 1/255, [H, W]: its share of the merged masks."""
        return np.asarray(self._confidence.pixels / np.float32(255))

    @property
    def uncertainty(self) -> float:
        """How wrong the mask may be: 1 - its expected IoU, from 0 to 1. To compare images, not to predict their IoU."""
        return uncertainty(self.mask, self._confidence, self._presence(), self.class_indices)

    def overlay(self, *, alpha: float = DEFAULT_ALPHA, legend: bool = False) -> Image.Image:
        """Blend the mask over the image, pixel by pixel, at the size of `image`.

        Args:
            alpha: Opacity of the colors, from 0 (only the outlines) to 1.
            legend: Add the class names to the right of the image, whose pixels keep their place.
        """
        blended = blend(self.image, _nearest(self.mask, self.image.shape), alpha=alpha)
        if not legend:
            return Image.fromarray(blended)
        values = self._mask_values()
        return add_legend(blended, [(values[name], f"{name} {self.scores[name]:.0%}") for name in self.labels])

    def confidence_image(self) -> Image.Image:
        """The confidence as a gray image: 255 is a probability of 1."""
        return Image.fromarray(self._confidence.pixels)

    def save(self, path: str | Path) -> None:
        """Write the mask as an indexed PNG: the value of a pixel is its class, in VOC's palette."""
        save_mask(self.mask, path)

    def mask_image(self) -> Image.Image:
        """The mask as the indexed image that `save` writes."""
        return mask_image(self.mask)

    def summary(self) -> dict[str, Any]:
        """Everything but the pixels, as plain values.

        A box is [x0, y0, x1, y1] around all pixels of a class; x1 and y1 are the first column and row after it.
        """
        values = self._mask_values()
        height, width = self.mask.shape
        return {
            "name": self.name,
            "path": self.path,
            "size": {"width": width, "height": height},
            "classes": [
                {
                    "name": name,
                    "value": values[name],
                    **_extent(self.mask, values[name]),
                    "confidence": mean_confidence(self.mask, self._confidence.pixels, values[name]),
                }
                for name in self.labels
            ],
            "scores": self.scores,
            "confidence": float(self._confidence.pixels.mean() / 255),
            "uncertainty": self.uncertainty,
            "nearest_threshold": self._nearest_threshold(),
            "protocol": self.protocol,
            "crf": self.crf,
            "settings": asdict(self.settings),
            "model": dict(self.model),
        }

    def to_json(self) -> str:
        """The summary as JSON."""
        return json.dumps(self.summary(), indent=2)

    def _presence(self) -> NDArray[np.float64]:
        """Probability that the image has each class, [C]."""
        if self.protocol == PREDICTED_TAGS:
            return class_presence(list(self.scores.values()), self._thresholds())
        presence = np.zeros(len(self.scores))
        presence[list(self.class_indices)] = 1  # the caller knows
        return presence

    def _nearest_threshold(self) -> dict[str, str | float] | None:
        """The class whose score is nearest to its threshold; None if no score decided."""
        is_decided = self.protocol == PREDICTED_TAGS
        return nearest_threshold(self.scores, self._thresholds(), self._presence()) if is_decided else None

    def _thresholds(self) -> tuple[float, ...]:
        return self.settings.thresholds_per_class(len(self.scores))

    def _mask_values(self) -> dict[str, int]:
        return {name: value for value, name in enumerate(self.scores, start=1)}


@dataclass(frozen=True)
class OutputFiles:
    """Files to write for each image: the mask, NAME_mask.png, and others.

    Attributes:
        overlay: Write NAME_overlay.jpg, of exactly the image's size up to 67 megapixels, and one legend.png.
        alpha: Opacity of the overlay's colors, from 0 to 1.
        legend: Add a legend to the right of each overlay, in place of legend.png.
        confidence: Write NAME_confidence.png.
    """

    overlay: bool = True
    alpha: float = DEFAULT_ALPHA
    legend: bool = False
    confidence: bool = False

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    @property
    def needs_legend_file(self) -> bool:
        """Whether the overlays need a legend.png."""
        return self.overlay and not self.legend

    def names(self, name: str) -> dict[str, str]:
        """Files of an image by kind, relative to the folder."""
        is_written = {"mask": True, "overlay": self.overlay, "confidence": self.confidence}
        return {kind: file for kind, file in output_files(name).items() if is_written[kind]}

    def save(self, kind: str, prediction: Prediction, file: Path | BinaryIO) -> None:
        """Draw the file of a kind and save it, whatever the suffix of its path."""
        if kind == "mask":
            prediction.mask_image().save(file, "PNG")
        elif kind == "confidence":
            prediction.confidence_image().save(file, "PNG")
        else:
            overlay = prediction.overlay(alpha=self.alpha, legend=self.legend)
            overlay.thumbnail((_MAX_JPEG_SIDE, _MAX_JPEG_SIDE))
            overlay.save(file, "JPEG", quality=90)


def output_files(name: str) -> dict[str, str]:
    """All files that an image can have, by kind, relative to the folder."""
    return {"mask": f"{name}_mask.png", "overlay": f"{name}_overlay.jpg", "confidence": f"{name}_confidence.png"}


def _nearest(mask: ClassMask, shape: Sequence[int]) -> ClassMask:
    """Mask at the size of an image that is reduced: the pixels nearest to the centers."""
    if mask.shape == tuple(shape[:2]):
        return mask
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(mask.shape, shape[:2], strict=True)
    )
    reduced: ClassMask = mask.take(rows, 0).take(columns, 1)
    return reduced


def _extent(mask: ClassMask, value: int) -> dict[str, Any]:
    """Area and bounding box of a class that has a pixel in the mask."""
    height, width = mask.shape
    area, in_rows, in_columns = 0, np.zeros(height, bool), np.zeros(width, bool)
    for band in bands(mask):
        is_class = mask[band] == value
        area += int(is_class.sum())
        in_rows[band] = is_class.any(1)
        in_columns |= is_class.any(0)
    rows, columns = np.flatnonzero(in_rows), np.flatnonzero(in_columns)
    box = [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]
    return {"area": area, "share": area / mask.size, "box": box}
