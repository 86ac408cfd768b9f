"""`open_dataset`: any known source to an `ImageDataset`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tagseg.data._scenes import KINDS
from tagseg.data.coco import list_coco
from tagseg.data.dataset import ImageDataset
from tagseg.data.folders import list_folders
from tagseg.data.listing import Listing
from tagseg.data.recognise import ClassFolders, Coco, Shapes, Table, Voc, recognise
from tagseg.data.shapes import shapes
from tagseg.data.tables import list_table
from tagseg.data.voc import VOC_CLASSES, list_voc
from tagseg.errors import DataError

Places = str | Path | Iterable[str | Path] | None


def open_dataset(
    source: str | Path,
    *,
    images: Places = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    sbd: str | Path | None = None,
    max_side: int | None = None,
) -> ImageDataset:
    """Open images with their tags, whatever form they come in.

    Args:
        source: a CSV or TSV of image and labels; a JSON lines file or folder as Hugging Face's imagefolder has them; a
            folder per class; the folder of VOC 2012 (and SBD); a COCO instances JSON or COCO's folder; or "shapes" or
            "shapes:500", the built-in dataset (a folder of that name is "./shapes").
        images: the folders and zips that hold the images of a table or of a COCO JSON, if not beside it.
        split: which part; needed where the source has several.
        classes: the classes in their order; without it, those of the source.
        separator: what separates the labels of a table's row; guessed if not given.
        sbd: the unpacked benchmark_RELEASE, if not beside VOC.
        max_side: reduce images whose longer side is longer, while decoding.
    """
    found = list_source(source, images=images, split=split, classes=classes, separator=separator, sbd=sbd)
    return found.require_images().dataset(max_side=max_side) if isinstance(found, Listing) else found


def list_source(
    source: str | Path,
    *,
    images: Places = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    sbd: str | Path | None = None,
) -> Listing | ImageDataset:
    """List a source's images, the missing ones too; the built-in dataset, which has no files, comes complete."""
    match recognise(source, split=split, sbd=Path(sbd) if sbd else None):
        case Shapes(count, which):
            _refuse_other_classes(source, classes, KINDS)
            return shapes(count, split=which)
        case Table(path, which):
            return list_table(path, images=as_paths(images), split=which, classes=classes, separator=separator)
        case Coco(path):
            return list_coco(path, images=as_paths(images), classes=classes)
        case Voc(folders, which):
            _refuse_other_classes(source, classes, VOC_CLASSES)
            return list_voc(folders, split=which)
        case ClassFolders(path, which):
            return list_folders(path, split=which, classes=classes)


def as_paths(places: Places) -> list[Path]:
    """One place or several as a list of paths."""
    if places is None:
        return []
    return [Path(place).expanduser() for place in ([places] if isinstance(places, str | Path) else places)]


def _refuse_other_classes(source: str | Path, classes: Sequence[str] | None, own: Sequence[str]) -> None:
    if classes is not None and tuple(classes) != tuple(own):
        raise DataError(f"{source}: its classes are fixed ({', '.join(own)}); leave out classes=")
