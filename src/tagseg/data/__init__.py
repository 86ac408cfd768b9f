"""Dataset readers: every format becomes one `ImageDataset`, and masks for evaluation one `MaskDataset`."""

from typing import TYPE_CHECKING

from tagseg.data.check_report import CheckReport
from tagseg.data.masks import IGNORE_LABEL, MaskDataset
from tagseg.data.shapes import shapes, shapes_masks
from tagseg.data.source import DataSource
from tagseg.errors import DataError

__all__ = [
    "IGNORE_LABEL",
    "CheckReport",
    "DataError",
    "DataSource",
    "ImageDataset",
    "MaskDataset",
    "shapes",
    "shapes_masks",
]

if TYPE_CHECKING:
    from tagseg.data.dataset import ImageDataset
else:

    def __getattr__(name: str) -> object:
        # torch takes seconds to import, and a wrong path is to be reported before that.
        if name != "ImageDataset":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from tagseg.data.dataset import ImageDataset

        return ImageDataset
