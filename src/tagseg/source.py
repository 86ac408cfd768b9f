"""Where images come from, as one value: what `open_dataset` and `open_masks` take."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tagseg.data import DataError, ImageDataset, MaskDataset, open_dataset, open_masks
from tagseg.data.listing import Listing
from tagseg.data.open import list_source


@dataclass(frozen=True)
class DataSource:
    """A source of tagged images, and of masks where it has some; `open_dataset` explains the fields."""

    data: str
    images: tuple[str, ...] = ()
    split: str | None = None
    masks: tuple[str, ...] = ()
    separator: str | None = None
    sbd: str | None = None

    @classmethod
    def of(cls, data: "str | Path | DataSource") -> "DataSource":
        """A source from what a person passes."""
        return data if isinstance(data, DataSource) else cls(str(data))

    def open(self, classes: Sequence[str] | None = None, *, skip_missing: bool = False) -> ImageDataset:
        """The tagged images; missing ones are an error, or left out."""
        if skip_missing:
            found = list_source(
                self.data, images=self.images or None, split=self.split, classes=classes, **self._reading()
            )
            return found.dataset() if isinstance(found, Listing) else found
        return open_dataset(self.data, images=self.images or None, split=self.split, classes=classes, **self._reading())

    def ground_truth(self, classes: Sequence[str] | None = None) -> MaskDataset:
        """The masks, for evaluation."""
        return open_masks(
            self.data,
            masks=self.masks or None,
            images=self.images or None,
            split=self.split,
            classes=classes,
            **self._reading(),
        )

    def masks_if_any(self, classes: Sequence[str] | None = None) -> MaskDataset | None:
        """The masks, or None where the source has none; masks that were named have to be there."""
        if self.masks:
            return self.ground_truth(classes)
        try:
            ground_truth = self.ground_truth(classes)
        except DataError:
            return None
        return ground_truth if len(ground_truth) else None

    def describe(self) -> dict[str, Any]:
        """For the run's configuration."""
        tidy = {"data": os.path.normpath(self.data), "images": tuple(map(os.path.normpath, self.images))}
        tidy["masks"] = tuple(map(os.path.normpath, self.masks))  # a slash more or less is the same place
        return {key: value for key, value in {**asdict(self), **tidy}.items() if value}

    @classmethod
    def described(cls, fields: dict[str, Any]) -> "DataSource":
        """The source that `describe` described; what else there is in the fields is left out."""
        own: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in fields.items()
            if key in cls.__dataclass_fields__
        }
        return cls(**own)

    def _reading(self) -> dict[str, Any]:
        return {"separator": self.separator, "sbd": self.sbd}
