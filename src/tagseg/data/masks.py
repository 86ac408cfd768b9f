"""`open_masks`: the masks of a source, for evaluation only. Nothing that trains calls it."""

import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tagseg.data.coco import category_names, read_instances
from tagseg.data.coco_masks import CocoMask
from tagseg.data.files import FileRef, Place
from tagseg.data.mask_dataset import Mask, MaskDataset
from tagseg.data.open import Places, as_paths, list_source
from tagseg.data.recognise import Coco, Shapes, Table, Voc, recognise
from tagseg.data.sbd import segmentation
from tagseg.data.shape_masks import shapes_masks
from tagseg.data.tables import places_beside
from tagseg.data.voc import VOC_CLASSES, VocFolders
from tagseg.errors import DataError

_LOSSLESS = frozenset({".png", ".tif", ".tiff", ".bmp"})
Readers = Mapping[str, Callable[[], Mask]]


def open_masks(
    source: str | Path,
    *,
    masks: Places = None,
    images: Places = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    sbd: str | Path | None = None,
) -> MaskDataset:
    """Open the masks of a source; call it with the arguments of `open_dataset`, and the image IDs are the same.

    Args:
        source: what `open_dataset` takes.
        masks: the folders and zips that hold one mask per image, ID.png: 0 background, k the k-th class, 255 ignore.
            Without it, VOC, SBD, COCO and shapes use their own; a table looks for masks/ID.png beside it and in the
            zips of its images.
        images: as in `open_dataset`.
        split: as in `open_dataset`.
        classes: as in `open_dataset`; mask values follow their order.
        separator: as in `open_dataset`.
        sbd: as in `open_dataset`.
    """
    kind = recognise(source, split=split, sbd=Path(sbd) if sbd else None)
    if masks is None and isinstance(kind, Shapes):
        return shapes_masks(kind.count, split=kind.split)
    if masks is None and isinstance(kind, Voc):
        return _truth(source, VOC_CLASSES, _voc_masks(kind.folders, kind.split))
    found = list_source(source, images=images, split=split, classes=classes, separator=separator, sbd=sbd)
    if masks is None and isinstance(kind, Coco):
        return _truth(source, found.classes, _coco_masks(kind.path, found.names, found.classes))
    places = as_paths(masks)
    if not places and isinstance(kind, Table):
        places = [*as_paths(images), *places_beside(kind.path)]
    return _truth(source, found.classes, _mask_files(found.names, places, anywhere=masks is not None))


def _truth(source: str | Path, classes: Sequence[str], readers: Readers) -> MaskDataset:
    if not readers:
        raise DataError(
            f"{source}: no masks were found; name their folder or zip with masks=, where the mask of dog.jpg is dog.png"
        )
    return MaskDataset(classes, readers)


def _mask_files(names: Sequence[str], paths: Sequence[Path], *, anywhere: bool) -> Readers:
    """Masks by their image's ID: in a folder `masks`, or anywhere in a place that was named for them."""
    places = [Place(path, endings=_LOSSLESS) for path in paths]
    readers: dict[str, Callable[[], Mask]] = {}
    for name in names:
        for place in places:
            file = place.find_stem(f"masks/{name}") or (place.find_stem(name) if anywhere else None)
            if file is not None:
                readers[name] = partial(read_mask, file)
                break
    return readers


def _voc_masks(folders: VocFolders, split: str) -> Readers:
    """VOC's own masks where there are any, SBD's for the other images."""
    readers: dict[str, Callable[[], Mask]] = {}
    for name in folders.ids(split):
        png = folders.voc / "SegmentationClass" / f"{name}.png"
        mat = folders.sbd / "cls" / f"{name}.mat" if folders.sbd else None
        if png.is_file():
            readers[name] = partial(read_mask, FileRef(png))
        elif mat is not None and mat.is_file():
            readers[name] = partial(segmentation, mat)
    return readers


def _coco_masks(path: Path, names: Sequence[str], classes: Sequence[str]) -> Readers:
    content = read_instances(path)
    value_of = {name: value for value, name in enumerate(classes, start=1)}
    values = {number: value_of[name] for number, name in category_names(content).items() if name in value_of}
    annotations: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for annotation in content["annotations"]:
        annotations[annotation["image_id"]].append(annotation)
    readers: dict[str, Callable[[], Mask]] = {}
    for name, image in zip(names, content["images"], strict=True):
        where = f"{path} (image {image['id']})"
        readers[name] = CocoMask(where, image["height"], image["width"], annotations[image["id"]], values)
    return readers


def read_mask(file: FileRef) -> Mask:
    """A mask with one value per pixel, palette or grey, [H, W]."""
    data = file.read()
    try:
        image = Image.open(io.BytesIO(data))
        values = np.array(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{file}: is not a mask that can be read; save it again as PNG") from error
    if values.ndim != 2 or values.min() < 0 or values.max() > 255:
        raise DataError(
            f"{file}: is no mask (mode {image.mode}); save one value from 0 to 255 per pixel, grey or palette"
        )
    return values.astype(np.uint8)
