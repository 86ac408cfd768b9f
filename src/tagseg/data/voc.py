"""PASCAL VOC 2012 and its extension SBD, as their original archives unpack: images and image labels.

VOC: VOCdevkit/VOC2012/{JPEGImages, Annotations, SegmentationClass, ImageSets/Segmentation}.
SBD: benchmark_RELEASE/dataset/{img, cls, train.txt, val.txt}.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tagseg.data._table_lines import read_text
from tagseg.data.files import FileRef
from tagseg.data.listing import Listing, Row, make_listing
from tagseg.data.sbd import categories_present
from tagseg.errors import DataError, unknown_name

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
_SPLITS = ("train", "val", "trainval", "train_aug")


@dataclass(frozen=True)
class VocFolders:
    """Where the two archives were unpacked; SBD is needed for `train_aug` only."""

    voc: Path
    sbd: Path | None

    def ids(self, split: str) -> list[str]:
        """The image IDs of a split: VOC's lists, or `train_aug` = VOC train and all of SBD less VOC val (10,582)."""
        if split not in _SPLITS:
            raise DataError(f"{self.voc}: {unknown_name('split', split, _SPLITS)}")
        if split != "train_aug":
            return _read_ids(self.voc / "ImageSets" / "Segmentation" / f"{split}.txt")
        if self.sbd is None:
            raise DataError(
                f"{self.voc}: train_aug needs SBD too; unpack benchmark_RELEASE beside it, name it with sbd=, "
                "or choose split='train'"
            )
        extended = {i for name in ("train", "val") for i in _read_ids(self.sbd / f"{name}.txt")}
        return sorted((extended | set(self.ids("train"))) - set(self.ids("val")))


def find_voc(root: Path, sbd: Path | None = None) -> VocFolders | None:
    """The archives' folders at or under `root`, or None if this is not VOC."""
    voc = _first_with(("JPEGImages", "ImageSets"), root, root / "VOC2012", root / "VOCdevkit" / "VOC2012")
    if voc is None:
        return None
    places = [sbd] if sbd else [root, root.parent, voc.parent.parent]
    tails = (Path(), Path("dataset"), Path("benchmark_RELEASE/dataset"), Path("benchmark/benchmark_RELEASE/dataset"))
    found = _first_with(("cls", "train.txt"), *(place / tail for place in places for tail in tails))
    if sbd and not found:
        raise DataError(f"{sbd}: holds no dataset/cls with train.txt beside it; name the unpacked benchmark_RELEASE")
    return VocFolders(voc, found)


def list_voc(folders: VocFolders, *, split: str = "train_aug") -> Listing:
    """List the images of a split with the classes of their objects, difficult ones included.

    Labels come from the XML annotation; for an image without one, from the categories that its SBD file lists.
    """
    rows = [
        Row(name, _labels(folders, name), _image(folders, name), f"{folders.voc} ({split})")
        for name in folders.ids(split)
    ]
    return make_listing(str(folders.voc), rows, VOC_CLASSES)


def _image(folders: VocFolders, name: str) -> FileRef | None:
    candidates = [folders.voc / "JPEGImages" / f"{name}.jpg"]
    if folders.sbd is not None:
        candidates.append(folders.sbd / "img" / f"{name}.jpg")
    return next((FileRef(path) for path in candidates if path.is_file()), None)


def _labels(folders: VocFolders, name: str) -> frozenset[str]:
    xml = folders.voc / "Annotations" / f"{name}.xml"
    if xml.is_file():
        try:
            found = ElementTree.parse(xml).findall("object/name")
        except ElementTree.ParseError as error:
            raise DataError(f"{xml}: is not valid XML ({error}); unpack the archive again") from error
        return frozenset((element.text or "").strip() for element in found)
    mat = folders.sbd / "cls" / f"{name}.mat" if folders.sbd is not None else None
    if mat is None or not mat.is_file():
        raise DataError(f"{xml}: does not exist, so the labels of {name} are unknown; unpack the archive again")
    return frozenset(VOC_CLASSES[category - 1] for category in categories_present(mat))


def _read_ids(path: Path) -> list[str]:
    return [line.split()[0] for line in read_text(path).splitlines() if line.strip()]


def _first_with(names: Sequence[str], *folders: Path) -> Path | None:
    return next((folder for folder in folders if all((folder / name).exists() for name in names)), None)
