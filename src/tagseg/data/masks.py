"""Masks, for evaluation and for training on masks: an `ImageDataset` has no access to them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tagseg.data.files import FileIndex, FileRef
from tagseg.data.images import open_image
from tagseg.data.limits import hold_file, hold_memory
from tagseg.errors import DataError

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is to be reported before that
    from tagseg.data.dataset import ImageDataset

IGNORE_LABEL = 255  # pixels of this value are left out of evaluation
Mask = NDArray[np.uint8]  # [H, W]
MaskReaders = Mapping[str, Callable[[], Mask]]

_FORMATS = ("PNG", "TIFF", "BMP")
_BYTES_PER_PIXEL = 9  # at the peak of decoding: of 32 bits in PIL and in the array, and the result
_LOSSLESS_SUFFIXES = frozenset({".png", ".tif", ".tiff", ".bmp"})


class MaskDataset(Mapping[str, Mask]):
    """Mapping from image ID to mask, uint8 [H, W]: 0 is background, k is `classes[k - 1]`, 255 is ignored.

    A mask is read on access. It may be larger than its image: resize the prediction to it.

    Args:
        classes: Class names, without background.
        readers: Function that reads the mask, for each image ID.
    """

    def __init__(self, classes: Sequence[str], readers: MaskReaders) -> None:
        self.classes = tuple(classes)
        self._readers = dict(readers)

    def __getitem__(self, image_id: str) -> Mask:
        reader = self._readers[image_id]
        mask = reader()
        for value in values_in(mask):
            if value > len(self.classes):
                location = str(reader) if isinstance(reader, MaskFile) else f"mask of {image_id!r}"
                raise DataError(
                    f"{location}: has the value {value}, but the classes only reach {len(self.classes)} "
                    f"(0 is background, {IGNORE_LABEL} is ignored)",
                    "name every class, in the masks' order",
                )
        return mask

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._readers  # Mapping would read the mask

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True)
class MaskFile:
    """A mask in a file; calling it reads the mask."""

    file: FileRef

    def __str__(self) -> str:
        return str(self.file)

    def __call__(self) -> Mask:
        return read_mask(self.file)


def find_mask_files(image_ids: Sequence[str], paths: Sequence[Path], *, any_folder: bool) -> MaskReaders:
    """Find mask files by image ID.

    Args:
        image_ids: Image IDs.
        paths: Folders and zips to search, in this order.
        any_folder: Accept a mask in any folder of `paths`, rather than only in a folder called `masks`.
    """
    indexes = [FileIndex(path, suffixes=_LOSSLESS_SUFFIXES) for path in paths]
    readers: dict[str, Callable[[], Mask]] = {}
    for image_id in image_ids:
        for index in indexes:
            file = index.find_stem(f"masks/{image_id}") or (index.find_stem(image_id) if any_folder else None)
            if file is not None:
                readers[image_id] = MaskFile(file)
                break
    return readers


def positions_with_masks(data: "ImageDataset", masks: MaskDataset, *, place: str = "") -> list[int]:
    """Positions of the images that have a mask.

    Args:
        data: Images.
        masks: Masks of the images.
        place: Where both come from, for the error, such as "photos.csv: ".

    Raises:
        DataError: No image has a mask.
    """
    positions = [position for position, image_id in enumerate(data.image_ids) if image_id in masks]
    if not positions:
        raise DataError(
            f"{place}none of the {len(data)} images has a mask (the first is {data.image_ids[0]!r})",
            "name the folder with their masks, ID.png, with {masks}",
        )
    return positions


def values_in(mask: Mask) -> list[int]:
    """Classes that have a pixel in a mask, from 1 and without the ignored value."""
    values = np.flatnonzero(np.bincount(mask.ravel(), minlength=IGNORE_LABEL + 1))
    return [int(value) for value in values if value not in (0, IGNORE_LABEL)]


def read_mask(file: FileRef) -> Mask:
    """Read a mask file that stores one value per pixel, palette or gray, [H, W]."""
    with hold_file(file.size()):
        data = file.read()
        try:
            image = open_image(data, _FORMATS)
            with hold_memory(image.width * image.height * _BYTES_PER_PIXEL):
                values = np.array(image)
                if values.ndim == 2 and values.min() >= 0 and values.max() <= 255:
                    return values.astype(np.uint8, copy=False)
        except Exception as error:  # PIL's decoders raise errors of many types on damaged files.
            raise DataError(f"{file}: is not a mask that can be read", "save it again as PNG") from error
    raise DataError(
        f"{file}: is not a mask (mode {image.mode})", "save one value from 0 to 255 per pixel, gray or palette"
    )
