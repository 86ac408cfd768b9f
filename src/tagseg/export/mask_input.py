"""Images with masks to export: of a dataset, or of a folder that `tagseg predict` wrote."""

import io
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from tagseg.data import DataSource
from tagseg.data.arrow import ARROW_SUFFIXES, arrow_images
from tagseg.data.classes import ClassChoice
from tagseg.data.dataset import ImageReader
from tagseg.data.files import FileIndex, FileRef, ImageFiles, expand_home, is_archive, is_file
from tagseg.data.images import decode, image_size, open_image
from tagseg.data.limits import hold_file
from tagseg.data.masks import Mask, MaskDataset, MaskFile, positions_with_masks
from tagseg.data.source import is_built_in
from tagseg.data.urls import UrlRef, is_url
from tagseg.errors import ConfigError, DataError, printable
from tagseg.predict.folder import read_indexes
from tagseg.predict.index import ImageRecord, PredictionIndex
from tagseg.predict.sources import safe_name, unused_name

# Formats that every annotation tool shows, with the suffixes that their files may have; other images become PNG.
_KEPT_FORMATS = {
    "JPEG": (".jpg", ".jpeg"),
    "MPO": (".jpg", ".jpeg"),  # a JPEG with further images, as some cameras write it
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageContent:
    """An image as it is written.

    Attributes:
        suffix: Suffix of its file.
        data: Content of its file.
        path: The file, if its content is the same.
        height: Height after EXIF rotation.
        width: Width after EXIF rotation.
    """

    suffix: str
    data: bytes
    path: Path | None
    height: int
    width: int


@dataclass(frozen=True)
class MaskedImage:
    """An image with its mask.

    Attributes:
        name: Name without a suffix, which can be the name of a file and which no other image has.
        suffix: Suffix of the image where it is now.
        read_image: Reads the image.
        read_mask: Reads the mask, whose values are those of `MaskedImages`.
        mask_has_size: Whether the mask is known to have the size of the image.
    """

    name: str
    suffix: str
    read_image: Callable[[], ImageContent]
    read_mask: Callable[[], Mask]
    mask_has_size: bool

    def read(self, *, with_image: bool) -> tuple[ImageContent | None, Mask]:
        """Read the mask, in the size of the image, and the image unless it is not needed."""
        mask = self.read_mask()
        if not with_image and self.mask_has_size:
            return None, mask
        image = self.read_image()
        if mask.shape != (image.height, image.width):
            size = (image.width, image.height)
            mask = np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))
        return (image if with_image else None), mask


@dataclass(frozen=True)
class MaskedImages:
    """Images with masks.

    Attributes:
        classes: Class names: the k-th one has the value k in a mask, 0 is background and 255 is ignored.
        images: The images that have a mask.
        without_masks: Number of the others.
    """

    classes: tuple[str, ...]
    images: tuple[MaskedImage, ...]
    without_masks: int


def open_masked_images(source: DataSource) -> MaskedImages:
    """Open the images of a dataset, or of a folder of predictions, with their masks."""
    folder = expand_home(source.path)
    indexes = [] if is_built_in(source.path) else read_indexes(folder)
    return _open_predictions(source, folder, indexes) if indexes else _open_dataset(source)


def _open_dataset(source: DataSource) -> MaskedImages:
    data = source.open()
    masks = source.open_masks(data.classes)
    indices = positions_with_masks(data, masks, place=f"{source.path}: ")
    used: dict[str, int] = {}
    images = []
    for index in indices:
        file = data.images.files[index] if isinstance(data.images, ImageFiles) else None
        read = partial(_read_generated, data.images, index) if file is None else partial(_read_file, file)
        name = _name(data.image_ids[index], used)
        read_mask = partial(masks.__getitem__, data.image_ids[index])
        images.append(MaskedImage(name, _suffix(file), read, read_mask, mask_has_size=False))
    return MaskedImages(data.classes, tuple(images), len(data) - len(images))


def _open_predictions(source: DataSource, folder: Path, indexes: list[PredictionIndex]) -> MaskedImages:
    classes = indexes[0].classes
    for index in indexes:
        if index.run != indexes[0].run:
            raise ConfigError(f"{folder}: its shards were predicted by different models or settings", "predict again")
        if not index.complete:
            logger.warning("%s: was interrupted; the images that were predicted are exported", folder)
    records = [record for index in indexes for record in index.images if "mask" in record.files]
    if not records:
        raise DataError(f"{folder}: has no predictions", "name a folder with at least one")
    if source.limit is not None and source.limit < len(records):
        records = [records[number * len(records) // source.limit] for number in range(source.limit)]
    masks = MaskDataset(classes, {record.name: MaskFile(FileRef(folder / record.files["mask"])) for record in records})
    if source.classes:
        masks = ClassChoice.parse(source.classes, classes, None, source.path).masks(masks)
    files = _PredictedFiles(folder, [FileIndex(expand_home(path)) for path in source.images])
    used: dict[str, int] = {}
    images = []
    for record in records:
        file = files.find(record)
        read_mask = partial(masks.__getitem__, record.name)
        name = _name(record.name, used)
        images.append(MaskedImage(name, _suffix(file), partial(_read_file, file), read_mask, mask_has_size=True))
    return MaskedImages(masks.classes, tuple(images), 0)


class _PredictedFiles:
    """Finds the images of predictions: in given folders, or where they were predicted.

    Args:
        folder: Folder of the predictions.
        indexes: Folders and archives to search.
    """

    def __init__(self, folder: Path, indexes: list[FileIndex]) -> None:
        self._folder, self._indexes = folder, indexes
        self._archives: dict[str, Mapping[str, FileRef]] = {}

    def find(self, record: ImageRecord) -> FileRef | UrlRef:
        """Find the image of a prediction."""
        path = record.path or ""
        if is_url(path) and not self._indexes:
            return UrlRef(path)
        if self._indexes:
            file = next((found for index in self._indexes if (found := index.find(record.name))), None)
        else:
            file = FileRef(Path(path)) if is_file(Path(path)) else self._find_member(path)
        if file is None:
            raise DataError(
                f"{self._folder}: the image {record.name!r} was not found{f' at {path}' if path else ''}",
                "name its folder or zip with {images}",
            )
        return file

    def _find_member(self, path: str) -> FileRef | None:
        """Find photos.zip:cats/1.jpg, or row 12 of an Arrow file as photos.arrow:12."""
        for end in (index for index, char in enumerate(path) if char == ":"):
            archive = path[:end]
            if archive not in self._archives and is_file(Path(archive)):
                if Path(archive).suffix.lower() in ARROW_SUFFIXES:
                    files = [file for _, file in arrow_images(Path(archive))]
                else:
                    files = list(FileIndex(Path(archive)).files.values()) if is_archive(archive) else []
                self._archives[archive] = {printable(str(file)): file for file in files}
            if path in self._archives.get(archive, ()):
                return self._archives[archive][path]
        return None


def _name(image_id: str, used: dict[str, int]) -> str:
    return unused_name(safe_name(image_id, keep_suffix=True), used)


def _suffix(file: FileRef | UrlRef | None) -> str:
    """Suffix of a file, or that of the images that are generated."""
    return ".png" if file is None else PurePosixPath(str(file).partition("?")[0]).suffix


def _read_file(file: FileRef | UrlRef) -> ImageContent:
    with hold_file(file.size() if isinstance(file, FileRef) else 0):
        data = file.read()
        width, height = image_size(data, str(file))
        suffix = _suffix(file).lower()
        suffixes = _KEPT_FORMATS.get(open_image(data).format or "")
        if suffixes is None:
            return _encoded(decode(data, str(file)))
        # A subclass of FileRef is a part of a file.
        is_on_disk = type(file) is FileRef and file.member is None
        path = file.path if isinstance(file, FileRef) and is_on_disk and suffix in suffixes else None
        return ImageContent(suffix if suffix in suffixes else suffixes[0], data, path, height, width)


def _read_generated(images: ImageReader, index: int) -> ImageContent:
    return _encoded(images.read(index))


def _encoded(pixels: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> ImageContent:
    """Image as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return ImageContent(".png", buffer.getvalue(), None, *pixels.shape[:2])
