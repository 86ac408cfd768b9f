"""Checks of the training data before the first step."""

from tagseg.data.check import find_unreadable
from tagseg.data.dataset import ImageDataset
from tagseg.errors import DataError


def readable_images(data: ImageDataset, *, skip_bad: bool, progress: bool = False) -> tuple[ImageDataset, int]:
    """Check that all images can be read.

    Args:
        data: Images to check.
        skip_bad: Leave out images that cannot be read, instead of raising an error.
        progress: Show a progress bar.

    Returns:
        The images that can be read, and the number of the others.
    """
    bad = find_unreadable(data, progress=progress)
    if bad and not skip_bad:
        first = next(iter(bad.values()))
        raise DataError(
            f"{len(bad)} of {len(data)} images cannot be read; the first: {first}",
            "repair or remove them, or leave them out with {skip_bad}",
        )
    return (data.subset([i for i in range(len(data)) if i not in bad]) if bad else data), len(bad)


def check_label_evidence(data: ImageDataset) -> list[str]:
    """Check that the labels suffice to learn from.

    Every class needs an image, and at least two classes must be absent from some images.

    Returns:
        Warnings, a line each.
    """
    counts = data.labels.sum(0)
    missing = [name for name, count in zip(data.classes, counts, strict=True) if count == 0]
    if missing:
        others = f" (nor {len(missing) - 1} more)" if missing[1:] else ""
        raise DataError(
            f"no image is tagged {missing[0]!r}{others}, so it cannot be learned",
            "add images of it or remove the class",
        )
    varying = int(((counts > 0) & (counts < len(data))).sum())
    if varying < 2:
        raise DataError(
            f"only {varying} class occurs in some images and not in others, and at least 2 must: masks are learned "
            "from what distinguishes images",
            "add images with other tags",
        )
    return [
        f"class {name!r} occurs in every image: nothing shows what it is not, so its masks may cover anything"
        for name, count in zip(data.classes, counts, strict=True)
        if count == len(data)
    ]
