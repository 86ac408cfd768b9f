"""Checks of the training data before the first step."""

import logging
from concurrent.futures import ThreadPoolExecutor

import torch

from tagseg._progress import track
from tagseg.data.check import decode_all
from tagseg.data.dataset import ImageDataset
from tagseg.data.findings import CLASS_LEVELS, DATASET_LEVELS
from tagseg.data.images import ImageInfo
from tagseg.data.masks import MaskDataset, values_in
from tagseg.errors import DataError

logger = logging.getLogger(__name__)


def readable_images(
    data: ImageDataset, *, skip_bad: bool, progress: bool = False
) -> tuple[ImageDataset, list[ImageInfo], int]:
    """Check that all images can be read.

    Args:
        data: Images to check.
        skip_bad: Leave out images that cannot be read, instead of raising an error.
        progress: Show a progress bar.

    Returns:
        The images that can be read, facts about them, and the number of the others.
    """
    results = decode_all(data, progress=progress)
    infos = {i: result for i, result in enumerate(results) if isinstance(result, ImageInfo)}
    bad = [result for result in results if isinstance(result, DataError)]
    if bad and not skip_bad:
        first = bad[0]
        raise DataError(
            f"{len(bad)} of {len(data)} images cannot be read; the first: {first}",
            "repair or remove them, or leave them out with {skip_bad}",
        )
    if bad:
        logger.warning("%d of %d images cannot be read and are left out; the first: %s", len(bad), len(data), bad[0])
    return (data.subset(list(infos)) if bad else data), list(infos.values()), len(bad)


def check_label_evidence(data: ImageDataset) -> list[str]:
    """Check that the labels suffice to learn from.

    Every class needs an image, and at least one class must be absent from some images. Images without tags are
    negatives: they show none of the classes.

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
    if (counts == len(data)).all():
        subject = f"every image is tagged {data.classes[0]!r}" if len(counts) == 1 else "every image has all classes"
        raise DataError(
            f"{subject}: masks are learned from what distinguishes images",
            "add images without it, which need no tags" if len(counts) == 1 else "add images that lack some",
        )
    return [
        f"class {name!r} occurs in every image: nothing shows what it is not, so its masks may cover anything"
        for name, count in zip(data.classes, counts, strict=True)
        if count == len(data)
    ]


def few_image_warnings(data: ImageDataset) -> list[str]:
    """What `check` calls a problem, but training can do: it learns from few images, and learns little.

    Returns:
        Warnings, a line each.
    """
    few, few_of_class = DATASET_LEVELS[0], CLASS_LEVELS[0]
    warnings = []
    if len(data) < few:
        warnings.append(f"{len(data)} images are too few to learn from; add images, {few} at the least")
    counts = zip(data.classes, data.labels.sum(0).tolist(), strict=True)
    if rare := [f"{name}: {count:g}" for name, count in counts if count < few_of_class]:
        names = ", ".join(rare[:2]) + (", ..." if rare[2:] else "")
        warnings.append(
            f"{len(rare)} class{'' if len(rare) == 1 else 'es'} ({names}) with fewer than {few_of_class} images, too "
            "few to learn from; add images or remove the class"
        )
    return warnings


def images_with_mask_labels(data: ImageDataset, masks: MaskDataset, *, progress: bool = False) -> ImageDataset:
    """Check all masks, and take the image-level labels from them: the classes that have a pixel.

    Args:
        data: Images; those without a mask are left out.
        masks: Masks of the images.
        progress: Show a progress bar.
    """
    indices = [index for index, image_id in enumerate(data.image_ids) if image_id in masks]
    if not indices:
        raise DataError(
            f"none of the {len(data)} images has a mask (the first is {data.image_ids[0]!r})",
            "name the folder with their masks, ID.png, with {masks}",
        )
    if len(indices) < len(data):
        logger.warning("%d of %d images have no mask and are left out", len(data) - len(indices), len(data))
    images = data.subset(indices)
    labels = torch.zeros_like(images.labels)
    with ThreadPoolExecutor() as pool:
        values = pool.map(lambda image_id: values_in(masks[image_id]), images.image_ids)
        for index, classes in enumerate(track(values, "Checking masks", len(images), quiet=not progress)):
            labels[index, [value - 1 for value in classes]] = 1
    return ImageDataset(images.classes, images.image_ids, labels, images.images)
