"""Masks for evaluation. Training code has no use for this module, and `ImageDataset` holds no way to reach it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tagseg.errors import DataError

IGNORE = 255
Mask = NDArray[np.uint8]  # [H, W]


class MaskDataset(Mapping[str, Mask]):
    """Image ID -> mask uint8 [H, W]: 0 background, k the class `classes[k - 1]`, 255 not judged.

    A mask is read when it is asked for, and may be larger than its image: resize the prediction to it.

    Attributes:
        classes: the class names, without background.
    """

    def __init__(self, classes: Sequence[str], readers: Mapping[str, Callable[[], Mask]]) -> None:
        self.classes = tuple(classes)
        self._readers = dict(readers)

    def __getitem__(self, name: str) -> Mask:
        mask = self._readers[name]()
        values = np.flatnonzero(np.bincount(mask.ravel(), minlength=256))
        unknown = [int(value) for value in values if len(self.classes) < value != IGNORE]
        if unknown:
            raise DataError(
                f"mask of {name!r}: has the value {unknown[0]}, but the {len(self.classes)} classes only reach "
                f"{len(self.classes)} (0 is background, {IGNORE} ignored); name every class, in the masks' order"
            )
        return mask

    def __contains__(self, name: object) -> bool:
        return name in self._readers  # without reading the mask, as Mapping would

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)
