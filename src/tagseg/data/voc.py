"""PASCAL VOC 2012 and its extension SBD, as their original archives unpack.

VOC: VOCdevkit/VOC2012/{JPEGImages, Annotations, SegmentationClass, ImageSets/Segmentation}.
SBD: benchmark_RELEASE/dataset/{img, cls, train.txt, val.txt}, with one MATLAB file per image in cls.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from tagseg.data.files import FileRef, read_text
from tagseg.data.limits import read_file
from tagseg.data.masks import Mask, MaskFile, MaskReaders
from tagseg.data.matlab import read_struct_field
from tagseg.data.records import Record, Records
from tagseg.errors import DataError, unknown_name

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
_MAX_XML_BYTES = 2**24
_SPLITS = ("train", "val", "trainval", "train_aug")


@dataclass(frozen=True)
class VocFolders:
    """Folders of the two unpacked archives.

    Attributes:
        voc: The folder VOC2012.
        sbd: SBD's folder `dataset`; only the split `train_aug` needs it.
    """

    voc: Path
    sbd: Path | None

    def image_ids(self, split: str) -> list[str]:
        """Image IDs of a split: VOC's lists, or `train_aug` = VOC train and all of SBD without VOC val (10,582)."""
        if split not in _SPLITS:
            raise DataError(f"{self.voc}: {unknown_name('split', split, _SPLITS)}")
        if split != "train_aug":
            return _read_ids(self.voc / "ImageSets" / "Segmentation" / f"{split}.txt")
        if self.sbd is None:
            raise DataError(
                f"{self.voc}: train_aug needs SBD too",
                "unpack benchmark_RELEASE beside it, name it with {sbd}, or choose another split with {split}",
            )
        sbd_ids = {image_id for name in ("train", "val") for image_id in _read_ids(self.sbd / f"{name}.txt")}
        return sorted((sbd_ids | set(self.image_ids("train"))) - set(self.image_ids("val")))

    def image(self, image_id: str) -> FileRef | None:
        """Image file, in VOC or else in SBD."""
        candidates = [self.voc / "JPEGImages" / f"{image_id}.jpg"]
        if self.sbd is not None:
            candidates.append(self.sbd / "img" / f"{image_id}.jpg")
        return next((FileRef(path) for path in candidates if path.is_file()), None)

    def annotation(self, image_id: str) -> Path:
        """VOC's XML annotation."""
        return self.voc / "Annotations" / f"{image_id}.xml"

    def mask(self, image_id: str) -> Path:
        """VOC's mask."""
        return self.voc / "SegmentationClass" / f"{image_id}.png"

    def sbd_annotation(self, image_id: str) -> Path | None:
        """SBD's MATLAB file, if there is one."""
        path = self.sbd / "cls" / f"{image_id}.mat" if self.sbd is not None else None
        return path if path is not None and path.is_file() else None


def find_voc(root: Path, sbd: Path | None = None) -> VocFolders | None:
    """Find the archives' folders at or under `root`; None if this is not VOC."""
    voc = _first_with(("JPEGImages", "ImageSets"), root, root / "VOC2012", root / "VOCdevkit" / "VOC2012")
    if voc is None:
        return None
    roots = [sbd] if sbd else [root, root.parent, voc.parent.parent]
    tails = (Path(), Path("dataset"), Path("benchmark_RELEASE/dataset"), Path("benchmark/benchmark_RELEASE/dataset"))
    sbd_folder = _first_with(("cls", "train.txt"), *(folder / tail for folder in roots for tail in tails))
    if sbd and not sbd_folder:
        raise DataError(
            f"{sbd}: holds no dataset/cls with train.txt beside it", "name the unpacked benchmark_RELEASE with {sbd}"
        )
    return VocFolders(voc, sbd_folder)


def read_voc(folders: VocFolders, *, split: str = "train_aug") -> Records:
    """Read the images of a split with the classes of their objects, including those marked as difficult.

    Labels come from VOC's XML annotation, or from SBD's list of categories for an image without one.
    """
    location = f"{folders.voc} ({split})"
    records = [
        Record(image_id, _labels(folders, image_id), folders.image(image_id), location)
        for image_id in folders.image_ids(split)
    ]
    return Records.merge(records, VOC_CLASSES)


def voc_masks(folders: VocFolders, split: str) -> MaskReaders:
    """Readers of a split's masks by image ID: VOC's masks, and SBD's for images without one."""
    readers: dict[str, Callable[[], Mask]] = {}
    for image_id in folders.image_ids(split):
        mat = folders.sbd_annotation(image_id)
        if folders.mask(image_id).is_file():
            readers[image_id] = MaskFile(FileRef(folders.mask(image_id)))
        elif mat is not None:
            readers[image_id] = partial(_sbd_mask, mat)
    return readers


def _labels(folders: VocFolders, image_id: str) -> frozenset[str]:
    xml = folders.annotation(image_id)
    if xml.is_file():
        try:
            elements = ElementTree.fromstring(read_file(xml, _MAX_XML_BYTES)).findall("object/name")
        except (ElementTree.ParseError, OSError, ValueError, LookupError) as error:
            raise DataError(f"{xml}: is not valid XML ({error})", "unpack the archive again") from error
        return frozenset((element.text or "").strip() for element in elements)
    mat = folders.sbd_annotation(image_id)
    if mat is None:
        raise DataError(f"{xml}: does not exist, so the labels of {image_id} are unknown", "unpack the archive again")
    return frozenset(VOC_CLASSES[category - 1] for category in _sbd_categories(mat))


def _sbd_categories(path: Path) -> list[int]:
    """Categories (1 to 20) that an SBD file lists for its image; the mask in the same file is not passed on."""
    values = _read_sbd(path, "CategoriesPresent").ravel().tolist()
    if any(value not in range(1, len(VOC_CLASSES) + 1) for value in values):
        raise _not_sbd(path, f"categories {values[:5]}")
    return [int(value) for value in values]


def _sbd_mask(path: Path) -> Mask:
    mask = _read_sbd(path, "Segmentation")
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise _not_sbd(path, f"mask of shape {list(mask.shape)} and type {mask.dtype}")
    return mask.copy()


def _read_sbd(path: Path, field: str) -> NDArray[Any]:
    try:
        return read_struct_field(path, "GTcls", field)
    except (OSError, ValueError) as error:
        raise _not_sbd(path, error) from error


def _not_sbd(path: Path, reason: object) -> DataError:
    return DataError(f"{path}: is not an SBD annotation ({reason})", "unpack the archive again")


def _read_ids(path: Path) -> list[str]:
    return [line.split()[0] for line in read_text(path).splitlines() if line.strip()]


def _first_with(names: Sequence[str], *folders: Path) -> Path | None:
    return next((folder for folder in folders if all((folder / name).exists() for name in names)), None)
