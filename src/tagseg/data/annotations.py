"""Images with masks that annotation tools export: what the readers of their formats have in common.

Every reader returns `Annotations`, from which follow the records of a dataset and the readers of its masks. A class
called "ignored" stands for pixels that are left out: annotation tools know no other way to say so.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tagseg.data.classes import ClassChoice
from tagseg.data.files import FileRef
from tagseg.data.masks import IGNORE_LABEL, Mask, MaskDataset, MaskReaders, values_in
from tagseg.data.records import Record, Records
from tagseg.errors import DataError, unknown_name

IGNORED_NAME = "ignored"  # of the class whose pixels have the value 255
MAX_SIDE = 100_000
MAX_PIXELS = 2**28  # a mask is held in memory, with that of one object


@dataclass(frozen=True)
class AnnotatedImage:
    """An image of an annotation tool.

    Attributes:
        name: Name of the image.
        file: The image's file, None if it was not found.
        labels: Names of its classes; None if only its mask tells them.
        mask: Reads the mask, whose values are those of `Annotations`.
        location: Where the image is listed, for error messages.
    """

    name: str
    file: FileRef | None
    labels: frozenset[str] | None
    mask: Callable[[], Mask]
    location: str


@dataclass(frozen=True)
class Annotations:
    """Annotated images; those that nobody has annotated are not among them.

    Attributes:
        location: Path of the annotations, for error messages.
        classes: Class names, without background and ignored pixels: the k-th one has the value k in a mask.
        images: The images.
    """

    location: str
    classes: tuple[str, ...]
    images: tuple[AnnotatedImage, ...]

    def __post_init__(self) -> None:
        if not self.images:
            raise DataError(f"{self.location}: has no annotated image", "name an export with at least one")

    def records(self, classes: Sequence[str] | None = None) -> Records:
        """Records of the images with their labels.

        Args:
            classes: Class names in their order; None means those of the annotations.
        """
        masks = MaskDataset(self.classes, self._readers())

        def labels(image: AnnotatedImage) -> frozenset[str]:
            if image.labels is not None:
                return image.labels - {IGNORED_NAME}
            return frozenset(self.classes[value - 1] for value in values_in(masks[image.name]))

        with ThreadPoolExecutor() as pool:
            return self._merge(list(pool.map(labels, self.images)), classes)

    def masks(self, classes: Sequence[str] | None = None) -> MaskDataset:
        """Masks by image ID.

        Args:
            classes: As in `records`; mask values follow their order.
        """
        names = self.classes if classes is None else tuple(classes)
        for name in self.classes:
            if name not in names:
                raise DataError(f"{self.location}: {unknown_name('class', name, names)}")
        records = self._merge([frozenset()] * len(self.images), classes)
        pairs = zip(records.image_ids, records.records, strict=True)
        readers = self._readers()
        masks = MaskDataset(self.classes, {image_id: readers[record.image] for image_id, record in pairs})
        return ClassChoice(names, {name: name for name in self.classes}).masks(masks)

    def _readers(self) -> MaskReaders:
        return {image.name: image.mask for image in reversed(self.images)}

    def _merge(self, labels: Sequence[frozenset[str]], classes: Sequence[str] | None) -> Records:
        records = [
            Record(image.name, image_labels, image.file, image.location)
            for image, image_labels in zip(self.images, labels, strict=True)
        ]
        return Records.merge(records, self.classes if classes is None else classes)


def class_values(names: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """Class names without the ignored one, and the mask value of each name.

    Args:
        names: Names of a format in their order, without background.
    """
    classes = tuple(name for name in names if name != IGNORED_NAME)
    return classes, [IGNORE_LABEL if name == IGNORED_NAME else 1 + classes.index(name) for name in names]


def require_class_names(names: Sequence[str], location: object) -> None:
    """Raise a `DataError` if names of classes are missing, empty, repeated, or too many for a mask."""
    if not names:
        raise DataError(f"{location}: names no class", "name the classes")
    if len(names) > IGNORE_LABEL:
        raise DataError(f"{location}: has {len(names)} classes", f"a mask holds at most {IGNORE_LABEL - 1}")
    for index, name in enumerate(names):
        if not name.strip():
            raise DataError(f"{location}: a class has an empty name", "name each class")
        if name in names[:index]:
            raise DataError(f"{location}: {name!r} is named twice", "name each class once")


def require_mask_size(height: int, width: int, location: object) -> None:
    """Raise a `DataError` if a mask of this size would not fit into memory."""
    if height * width > MAX_PIXELS:
        raise DataError(f"{location}: has the size {width} x {height}", "correct or remove the entry")
