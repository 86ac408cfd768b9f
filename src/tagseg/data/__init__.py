"""Every way in: each ends in one `ImageDataset` dataset, and nothing after this room knows where an image came from."""

from tagseg.data.checking import check
from tagseg.data.dataset import ImageDataset
from tagseg.data.mask_dataset import MaskDataset
from tagseg.data.masks import open_masks
from tagseg.data.open import open_dataset
from tagseg.data.report import CheckReport
from tagseg.data.shape_masks import shapes_masks
from tagseg.data.shapes import shapes
from tagseg.errors import DataError

__all__ = [
    "CheckReport",
    "DataError",
    "ImageDataset",
    "MaskDataset",
    "check",
    "open_dataset",
    "open_masks",
    "shapes",
    "shapes_masks",
]
