"""Accuracy of a model on images of many resolutions: the same images at their own size, enlarged and reduced."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image

from tagseg.benchmarks.timing import Measurements, ScoreTable
from tagseg.data import DataSource, ImageDataset, MaskDataset
from tagseg.data.dataset import ImageReader
from tagseg.data.images import ImageInfo, Pixels
from tagseg.data.masks import Mask
from tagseg.evaluation.evaluate import PROTOCOLS, evaluate, images_with_masks
from tagseg.predict.predictor import load
from tagseg.predict.resize import resize_image, scaled_shape
from tagseg.predict.settings import WorkingSize

FACTORS = (1.0, 3.0, 6.0, 0.5)


class SizesBenchmark:
    """Benchmark of a model's masks on resized images; wrong arguments raise before it runs.

    Args:
        model: A run folder, a model file or `default`.
        data: Images with masks.
        threshold: Score from which a class counts as present; by default the model's own.
        size: Working size; by default the model's own.
        device: Device to run on.
    """

    def __init__(
        self,
        model: str | Path,
        data: str | Path | DataSource,
        *,
        threshold: float | None,
        size: WorkingSize | None,
        device: torch.device,
    ) -> None:
        self._predictor, source = load(model, device=str(device)), DataSource.of(data)
        settings = self._predictor.settings.with_size(size)
        self._predictor.settings = settings if threshold is None else settings.with_threshold(threshold)
        images, self._masks = source.open(self._predictor.classes), source.open_masks(self._predictor.classes)
        self._images = images.subset(images_with_masks(self._predictor, images, self._masks))

    def __call__(self, device: torch.device) -> Measurements:  # noqa: ARG002  the model is on it
        """Evaluate at every factor, single-scale and without CRF."""
        rows = []
        for factor in FACTORS:
            images, masks = resized_dataset(self._images, factor), resized_masks(self._masks, factor)
            result = evaluate(self._predictor, images, masks, progress=True)
            rows.append((f"{factor:g}x", tuple(100 * result.mean_iou(protocol) for protocol in PROTOCOLS)))
        backbone, size = self._predictor.description["backbone"], self._predictor.settings.size
        title = f"mIoU by image size, {backbone}, {len(self._images):,} images, working size {size}"
        note = "Images at their own size, enlarged and reduced; masks at the size of the resized image. Single-scale."
        return Measurements(scores=(ScoreTable(title, PROTOCOLS, tuple(rows), note),))


@dataclass(frozen=True)
class _ResizedReader:
    """Reader of another reader's images, enlarged or reduced by a factor."""

    reader: ImageReader
    factor: float

    def read(self, index: int) -> Pixels:
        image = self.reader.read(index)
        return resize_image(image, scaled_shape(image.shape, self.factor))

    def info(self, index: int) -> ImageInfo:
        return self.reader.info(index)

    def select(self, indices: Sequence[int]) -> Self:
        return type(self)(self.reader.select(indices), self.factor)


def resized_dataset(data: ImageDataset, factor: float) -> ImageDataset:
    """Dataset with all images enlarged or reduced by a factor, bicubic and antialiased."""
    return ImageDataset(data.classes, data.image_ids, data.labels, _ResizedReader(data.images, factor))


def resized_masks(masks: MaskDataset, factor: float) -> MaskDataset:
    """Ground truth enlarged or reduced by a factor: each pixel takes the nearest one's class."""
    readers: dict[str, Callable[[], Mask]] = {name: partial(_resized_mask, masks, name, factor) for name in masks}
    return MaskDataset(masks.classes, readers)


def _resized_mask(masks: MaskDataset, name: str, factor: float) -> Mask:
    mask = masks[name]
    height, width = scaled_shape(mask.shape, factor)
    return np.array(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST))
