"""Choose classes of a source: keep, rename or merge them, in image-level labels and in masks alike."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tagseg.data.masks import IGNORE_LABEL, Mask, MaskDataset
from tagseg.data.records import Records
from tagseg.errors import DataError, unknown_name

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is to be reported before that
    from tagseg.data.dataset import ImageDataset


def split_choice(choice: str | Iterable[str] | None) -> tuple[str, ...]:
    """Entries of a choice of classes, such as `vehicle=car|bus` and `dog` of "vehicle=car|bus,dog"."""
    entries = choice.split(",") if isinstance(choice, str) else choice or ()
    texts = tuple(entry.strip() for entry in entries if entry.strip())
    if isinstance(choice, str) and not texts:
        raise DataError("no class is chosen", "name those to keep with {classes}, such as 'vehicle=car|bus,dog'")
    return texts


@dataclass(frozen=True)
class ClassChoice:
    """Classes that are kept; labels of the others are dropped, and their pixels in masks become background.

    Attributes:
        classes: New names in their order.
        new_names: New name of each class of the source that is kept.
    """

    classes: tuple[str, ...]
    new_names: Mapping[str, str]

    @classmethod
    def parse(
        cls, entries: Iterable[str], known: Collection[str], classes: Sequence[str] | None, location: str
    ) -> "ClassChoice":
        """Read the entries of a choice.

        Args:
            entries: A name to keep, or `NEW=OLD` or `NEW=OLD|OLD` to rename or merge.
            known: Classes of the source.
            classes: Classes that the new names must be among, in their order; None means the order of the entries.
            location: Name of the source, for error messages.
        """
        pairs: list[tuple[str, str]] = []
        for entry in entries:
            new, equals, old_names = entry.partition("=") if entry not in known else (entry, "", "")
            for old in old_names.split("|") if equals else [new]:
                if not new.strip() or not old.strip():
                    raise DataError(f"classes: {entry!r} lacks a name", "write NAME, NEW=OLD or NEW=OLD|OLD")
                pairs.append((new.strip(), old.strip()))
        for old, count in Counter(old for _, old in pairs).items():
            if old not in known:
                raise DataError(f"{location}: {unknown_name('class', old, known)}")
            if count > 1:
                raise DataError(f"classes: {old!r} is named twice", "name each class once")
        new_names = dict.fromkeys(new for new, _ in pairs)
        for new in new_names if classes is not None else ():
            if new not in (classes or ()):
                raise DataError(f"{location}: the model has no such class: {unknown_name('class', new, classes or ())}")
        return cls(tuple(classes or new_names), {old: new for new, old in pairs})

    def records(self, records: Records) -> Records:
        """Records with the new classes."""
        return Records(
            self.classes,
            tuple(
                replace(
                    record, labels=frozenset(self.new_names[name] for name in record.labels & self.new_names.keys())
                )
                for record in records.records
            ),
        )

    def images(self, dataset: "ImageDataset") -> "ImageDataset":
        """Dataset with the new classes."""
        from tagseg.data.dataset import ImageDataset

        labels = dataset.labels.new_zeros(len(dataset), len(self.classes))
        for old, new in self.new_names.items():
            column = labels[:, self.classes.index(new)]
            column += dataset.labels[:, dataset.classes.index(old)]
        return ImageDataset(self.classes, dataset.image_ids, labels.clamp_max(1), dataset.images)

    def masks(self, masks: MaskDataset) -> MaskDataset:
        """Masks with the values of the new classes."""
        values = np.zeros(256, np.uint8)
        values[IGNORE_LABEL] = IGNORE_LABEL
        for old, new in self.new_names.items():
            values[1 + masks.classes.index(old)] = 1 + self.classes.index(new)
        return MaskDataset(self.classes, {image_id: _MappedMask(masks, image_id, values) for image_id in masks})


@dataclass(frozen=True)
class _MappedMask:
    """Reader of a mask whose values are replaced."""

    masks: MaskDataset
    image_id: str
    values: Mask

    def __call__(self) -> Mask:
        mapped: Mask = self.values[self.masks[self.image_id]]
        return mapped
