"""Folders of masks: images beside their masks, and the pseudo labels that tagseg writes.

images/1.jpg with masks/1.png, or JPEGImages/1.jpg with SegmentationClass/1.png. The names of the classes are the lines
of classes.txt, without the background; without this file they are numbered.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from typing_extensions import TypedDict  # that of pydantic before Python 3.12

from tagseg._json import parse_json, validated
from tagseg.data.files import FileIndex, FileRef, read_text
from tagseg.data.images import strip_image_suffix
from tagseg.data.masks import MaskDataset, MaskFile, MaskReaders, find_mask_files, values_in
from tagseg.data.records import Record, Records
from tagseg.errors import DataError

MASK_FOLDER = "SegmentationClass"  # of VOC's layout
PSEUDO_LABELS_FILE = "pseudo_labels.json"  # how the masks of a folder were made, and where their images are
_FOLDERS = (("images", "masks"), ("JPEGImages", MASK_FOLDER))
_CLASSES_FILE = "classes.txt"


class _PseudoLabelsFile(TypedDict):
    data: dict[str, Any]
    classes: list[str]


def is_mask_folder(root: Path) -> bool:
    """Whether a folder has images beside their masks."""
    return _find_folders(root) is not None


def read_mask_folders(root: Path, classes: Sequence[str] | None = None) -> Records:
    """Read the images that have a mask; their labels are the classes in it.

    Args:
        root: Folder of the two folders.
        classes: Class names in the order of the masks' values; None means those of classes.txt, or numbers.
    """
    masks = mask_folder_files(root)
    if classes is None:
        classes = mask_folder_classes(root)
    dataset = MaskDataset(classes, masks)
    with ThreadPoolExecutor() as pool:
        values = dict(zip(masks, pool.map(lambda image_id: values_in(dataset[image_id]), masks), strict=True))
    records = [
        Record(image_id, frozenset(classes[value - 1] for value in values[image_id]), file, str(file))
        for image_id, file in _images(root)
        if image_id in values
    ]
    return Records.merge(records, classes)


def mask_folder_files(root: Path) -> MaskReaders:
    """Readers of a folder's masks by image ID."""
    folders = _find_folders(root)
    assert folders is not None
    return find_mask_files([image_id for image_id, _ in _images(root)], [folders[1]], any_folder=True)


def mask_folder_classes(root: Path) -> tuple[str, ...]:
    """Class names of a folder: the lines of its classes.txt, or numbers up to the highest value of its masks."""
    if (file := root / _CLASSES_FILE).is_file():
        return tuple(line.strip() for line in read_text(file).splitlines() if line.strip())
    with ThreadPoolExecutor() as pool:
        values = pool.map(lambda read: values_in(read()), mask_folder_files(root).values())
        highest = max((value for mask_values in values for value in mask_values), default=0)
    if not highest:
        raise DataError(f"{root}: its masks have no class, only background", f"name the classes in {_CLASSES_FILE}")
    return tuple(f"class {value}" for value in range(1, highest + 1))


def read_pseudo_label_source(root: Path) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Description of the images of a folder of pseudo labels, and its class names; None if this is not one."""
    path = root / PSEUDO_LABELS_FILE
    if not path.is_file():
        return None
    advice = "make the pseudo labels again in another folder"
    values = validated(_PseudoLabelsFile, parse_json(read_text(path), path, advice), path, advice)
    return values["data"], tuple(values["classes"])


def pseudo_label_file(root: Path, image_id: str) -> Path:
    """File of an image's mask in a folder of pseudo labels; an ID that is a path does not lead out of the folder."""
    parts = [part for part in PurePosixPath(image_id).parts if part not in ("/", "..")]
    return root / MASK_FOLDER / f"{PurePosixPath(*parts)}.png"


def pseudo_label_masks(root: Path, image_ids: Iterable[str]) -> MaskReaders:
    """Readers of the masks in a folder of pseudo labels, for the images that have one."""
    files = ((image_id, pseudo_label_file(root, image_id)) for image_id in image_ids)
    return {image_id: MaskFile(FileRef(file)) for image_id, file in files if file.is_file()}


def _find_folders(root: Path) -> tuple[Path, Path] | None:
    pairs = ((root / images, root / masks) for images, masks in _FOLDERS)
    return next(((images, masks) for images, masks in pairs if images.is_dir() and masks.is_dir()), None)


def _images(root: Path) -> Iterator[tuple[str, FileRef]]:
    """Image IDs and files."""
    folders = _find_folders(root)
    assert folders is not None
    return ((str(strip_image_suffix(name)), file) for name, file in FileIndex(folders[0]).files.items())
