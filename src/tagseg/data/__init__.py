"""Every way in: each ends in one `ImageTags` dataset, and nothing after this room knows where a picture came from."""

from tagseg.data.checking import check
from tagseg.data.dataset import ImageTags
from tagseg.data.errors import DataError
from tagseg.data.masks import open_truth
from tagseg.data.open import open_dataset
from tagseg.data.report import CheckReport
from tagseg.data.shape_masks import shapes_truth
from tagseg.data.shapes import shapes
from tagseg.data.truth import PixelTruth

__all__ = [
    "CheckReport",
    "DataError",
    "ImageTags",
    "PixelTruth",
    "check",
    "open_dataset",
    "open_truth",
    "shapes",
    "shapes_truth",
]
