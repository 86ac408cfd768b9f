"""The images that the tabs show: the validation images of the run, or the photos that come with tagseg."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

import tagseg
from tagseg.app.context import Context
from tagseg.data.dataset import ImageDataset
from tagseg.data.files import FileRef, ImageFiles
from tagseg.data.masks import Mask, MaskDataset
from tagseg.report.stages import evenly_spaced
from tagseg.training.run_folder import validation_data

SAMPLES = {path.name: path for path in sorted((Path(tagseg.__file__).parent / "photos").glob("*.jpg"))}
SAMPLES_ROUTE = "/app/samples"
MAX_LISTED = 2000  # images in a list to choose from


@dataclass(frozen=True)
class ShownImages:
    """Images that a tab shows.

    Attributes:
        data: The images with their tags.
        masks: Their ground-truth masks, if there are any.
        have_tags: Whether tags are known; nobody has tagged the photos.
    """

    data: ImageDataset
    masks: MaskDataset | None
    have_tags: bool

    def ground_truth(self, index: int) -> Mask | None:
        """Ground-truth mask of an image, if there is one."""
        image_id = self.data.image_ids[index]
        return self.masks[image_id] if self.masks is not None and image_id in self.masks else None

    def tags(self, index: int) -> list[str]:
        """Tags of an image."""
        return [self.data.classes[k] for k in self.data.labels[index].nonzero().flatten().tolist()]

    def choices(self) -> list[tuple[str, int]]:
        """Images to choose from, each with its index; evenly spaced if there are too many for a list."""
        return [(self.data.image_ids[index], index) for index in evenly_spaced(self.data.image_ids, MAX_LISTED)]


@lru_cache(maxsize=1)
def open_images(context: Context) -> ShownImages:
    """Open the images of the page; all tabs share them.

    Raises:
        ConfigError: The folder of the run is damaged.
        DataError: The images of the run cannot be opened, or the page's model has other classes.
    """
    if context.run is None:
        classes = context.model.classes
        files = ImageFiles(tuple(FileRef(path) for path in SAMPLES.values()))
        return ShownImages(
            ImageDataset(classes, tuple(SAMPLES), torch.zeros(len(SAMPLES), len(classes)), files), None, False
        )
    data, masks = validation_data(context.run)
    context.model.check_classes("run's images", data.classes)
    return ShownImages(data, masks, have_tags=True)
