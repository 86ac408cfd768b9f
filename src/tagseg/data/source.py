"""Open a dataset: detect its format, read its records, build an `ImageDataset` or a `MaskDataset`.

DataSource("photos.csv", images="photos/").open()
DataSource("VOCdevkit", split="val").open_masks()
"""

import logging
import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tarfile import is_tarfile
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired
from zipfile import is_zipfile

from pydantic import AfterValidator
from typing_extensions import TypedDict  # that of pydantic before Python 3.12

from tagseg._json import validated
from tagseg.data._shapes_render import SHAPE_CLASSES
from tagseg.data.annotations import Annotations
from tagseg.data.arrow import ARROW_SUFFIXES, read_arrow
from tagseg.data.class_folders import read_class_folders
from tagseg.data.classes import ClassChoice, split_choice
from tagseg.data.coco import coco_masks, find_coco, read_coco
from tagseg.data.cvat import is_cvat, read_cvat
from tagseg.data.files import TAR_SUFFIX, expand_home, find_shards
from tagseg.data.imagefolder import find_image_folder, read_image_folder
from tagseg.data.images import IMAGE_SUFFIXES
from tagseg.data.label_studio import is_json_list, read_label_studio
from tagseg.data.mask_folders import (
    is_mask_folder,
    mask_folder_classes,
    mask_folder_files,
    pseudo_label_masks,
    read_mask_folders,
    read_pseudo_label_source,
)
from tagseg.data.masks import MaskDataset, find_mask_files
from tagseg.data.records import Records
from tagseg.data.shapes import shapes, shapes_masks
from tagseg.data.tables import TABLE_SUFFIXES, default_image_paths, read_table
from tagseg.data.voc import VOC_CLASSES, VocFolders, find_voc, read_voc, voc_masks
from tagseg.data.webdataset import read_webdataset
from tagseg.data.yolo import YOLO_SUFFIXES, find_yolo, read_yolo
from tagseg.errors import DataError

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is to be reported before that
    from tagseg.data.dataset import ImageDataset

logger = logging.getLogger(__name__)

Paths = str | Path | Iterable[str | Path] | None


@dataclass(frozen=True)
class Shapes:
    """The built-in dataset."""

    count: int
    split: str


@dataclass(frozen=True)
class Table:
    """A CSV, TSV or JSON lines file; `split` is a value of its column `split`."""

    path: Path
    split: str | None


@dataclass(frozen=True)
class Coco:
    """A COCO instances JSON."""

    path: Path


@dataclass(frozen=True)
class Voc:
    """VOC 2012, with or without SBD."""

    folders: VocFolders
    split: str


@dataclass(frozen=True)
class Arrow:
    """Arrow or Parquet files of Hugging Face's `datasets`."""

    files: tuple[Path, ...]


@dataclass(frozen=True)
class WebDataset:
    """Tars of images and labels."""

    files: tuple[Path, ...]


@dataclass(frozen=True)
class ClassFolders:
    """One folder per class."""

    path: Path
    split: str | None


@dataclass(frozen=True)
class MaskFolders:
    """A folder of images beside one of masks."""

    path: Path


@dataclass(frozen=True)
class PseudoLabels:
    """The masks that `tagseg pseudo-labels` wrote, and the source of their images."""

    path: Path
    source: "DataSource"
    classes: tuple[str, ...]


@dataclass(frozen=True)
class AnnotationFiles:
    """Images with masks that an annotation tool exported."""

    tool: Literal["yolo", "cvat", "label-studio", "image-folder"]
    path: Path
    split: str | None = None


DataFormat = (
    Shapes | Table | Coco | Voc | Arrow | WebDataset | ClassFolders | MaskFolders | PseudoLabels | AnnotationFiles
)


def _require_path(path: str) -> str:
    if any(char == "\0" or unicodedata.category(char) == "Cs" for char in path):
        raise ValueError("no file system has such a path")
    return path


_Path = Annotated[str, AfterValidator(_require_path)]


class _Description(TypedDict):
    """What `DataSource.describe` writes."""

    path: _Path
    images: NotRequired[Sequence[_Path]]
    split: NotRequired[str | None]
    masks: NotRequired[Sequence[_Path]]
    separator: NotRequired[str | None]
    sbd: NotRequired[_Path | None]
    limit: NotRequired[int | None]
    classes: NotRequired[Sequence[str]]


@dataclass(frozen=True, init=False)
class DataSource:
    """A dataset that can be opened: its path and how to read it.

    Args:
        path: A CSV or TSV of image and labels; a JSON lines file or folder as Hugging Face's imagefolder has them; a
            folder per class; the folder of VOC 2012 (and SBD); a COCO instances JSON or COCO's folder; a folder with
            images/ and masks/; what an annotation tool exported (YOLO's data.yaml or its folder, CVAT's Segmentation
            mask as folder or zip, Label Studio's JSON, Hugging Face's imagefolder with masks); Arrow or Parquet files
            of Hugging Face's `datasets`, or a folder of them; WebDataset tars, or a folder of them; the folder of
            pseudo labels; or "shapes" or "shapes:500", the built-in dataset (a folder of that name is "./shapes").
        images: Folders and zips that hold the images of a table or of annotations, if not beside it.
        split: Split to open; needed where the source has several.
        masks: Folders and zips that hold one mask per image, ID.png: 0 is background, k is the k-th class, 255 is
            ignored. By default VOC, SBD, COCO and shapes use their own masks, and a table looks for masks/ID.png
            beside it and in the zips of its images.
        separator: Separator of the labels in a row's text; None means that the rows show it.
        sbd: The unpacked benchmark_RELEASE, if not beside VOC.
        limit: Number of images to use, evenly spaced over the source; all by default.
        classes: Classes to keep, in this order, as "dog,cat" or a list of names; `NEW=OLD` renames a class and
            `NEW=OLD|OLD` merges several. Labels of the others are dropped: an image that has no other label shows no
            class, and their pixels in masks are background. All classes by default.
    """

    path: str
    images: tuple[str, ...]
    split: str | None
    masks: tuple[str, ...]
    separator: str | None
    sbd: str | None
    limit: int | None
    classes: tuple[str, ...]

    def __init__(
        self,
        path: str | Path,
        images: Paths = None,
        split: str | None = None,
        masks: Paths = None,
        separator: str | None = None,
        sbd: str | Path | None = None,
        limit: int | None = None,
        classes: str | Iterable[str] | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise DataError(f"{path}: the limit must be 1 or more images, got {limit}")
        fields = {
            "path": path if isinstance(path, str) else _folder_text(str(path)),
            "images": _as_texts(images),
            "split": split,
            "masks": _as_texts(masks),
            "separator": separator,
            "sbd": None if sbd is None else str(sbd),
            "limit": limit,
            "classes": split_choice(classes),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)  # the class is frozen

    @classmethod
    def of(cls, data: "str | Path | DataSource") -> "DataSource":
        """Source of a path, or the source itself."""
        return data if isinstance(data, DataSource) else cls(data)

    def detect(self) -> DataFormat:
        """Detect the format from the path's name and the folder's content, without reading an image."""
        if is_built_in(self.path):
            return Shapes(_shapes_count(self.path), self.split or "train")
        path = expand_home(self.path)
        try:
            is_folder, exists = path.is_dir(), path.exists()
        except (OSError, ValueError):  # no file system allows this name
            is_folder = exists = False
        if is_folder:
            return self._detect_folder(path)
        if not exists:
            raise DataError(
                f"{self.path}: does not exist",
                "name a table, a COCO JSON, Parquet or tar file, a folder, or 'shapes'",
            )
        if path.suffix.lower() in TABLE_SUFFIXES:
            return Table(path, self.split)
        if path.suffix.lower() == ".json":
            return AnnotationFiles("label-studio", path) if is_json_list(path) else Coco(path)
        if path.suffix.lower() in YOLO_SUFFIXES:
            return AnnotationFiles("yolo", path, self.split)
        if is_zipfile(path) and is_cvat(path):
            return AnnotationFiles("cvat", path, self.split)
        if path.suffix.lower() in ARROW_SUFFIXES:
            return Arrow((path,))
        if path.suffix.lower() == TAR_SUFFIX:
            return WebDataset((path,))
        if is_tarfile(path):
            raise DataError(f"{self.path}: is compressed", f"unpack it to a {TAR_SUFFIX} file or a folder")
        raise DataError(
            f"{self.path}: has no known format",
            f"name a file ending in {', '.join((*TABLE_SUFFIXES, *ARROW_SUFFIXES, TAR_SUFFIX))} or .json, or a folder",
        )

    def open(self, classes: Sequence[str] | None = None, *, skip_missing: bool = False) -> "ImageDataset":
        """Open the images with their labels.

        Args:
            classes: Class names in their order; None means those of the source, or those that it keeps.
            skip_missing: Leave out images whose file is missing, instead of raising an error.
        """
        dataset, records = self.open_available(classes)
        missing = records.missing
        if missing:
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            problem = f"{missing[0].location}: no image {missing[0].image!r}{others} was found"
            if not skip_missing:
                raise DataError(problem, "name its folder or zip with {images}, or remove the row")
            logger.warning("%s: left out", problem)
        if not len(dataset) and not skip_missing:
            raise DataError(f"{self.path}: has no images", "name a source with at least one")
        return dataset

    def open_available(self, classes: Sequence[str] | None = None) -> "tuple[ImageDataset, Records]":
        """Open the images whose file exists, and return the records of all, of which the built-in dataset has none.

        Args:
            classes: As in `open`.
        """
        entries = self._read_kept(classes)
        records = entries if isinstance(entries, Records) else Records(entries.classes, ())
        dataset = entries.dataset() if isinstance(entries, Records) else entries
        count = len(dataset)
        if self.limit is not None and self.limit < count:
            dataset = dataset.subset([number * count // self.limit for number in range(self.limit)])
        return dataset, records

    def open_masks(self, classes: Sequence[str] | None = None) -> MaskDataset:
        """Open the masks, for evaluation; image IDs are those of `open`.

        Args:
            classes: As in `open`; mask values follow their order.
        """
        if not self.classes:
            return self._open_all_masks(classes)
        masks = self._open_all_masks(None)
        return ClassChoice.parse(self.classes, masks.classes, classes, self.path).masks(masks)

    def _open_all_masks(self, classes: Sequence[str] | None) -> MaskDataset:
        """Open the masks with all classes of the source."""
        data_format = self.detect()
        if not self.masks:
            match data_format:
                case Shapes(count, split):
                    return shapes_masks(count, split=split)
                case Voc(folders, split):
                    return self._require_masks(MaskDataset(VOC_CLASSES, voc_masks(folders, split)))
                case MaskFolders(path):
                    return self._require_masks(
                        MaskDataset(classes or mask_folder_classes(path), mask_folder_files(path))
                    )
                case PseudoLabels(path, source, names):
                    image_ids = source.open(names, skip_missing=True).image_ids
                    return self._require_masks(MaskDataset(names, pseudo_label_masks(path, image_ids)))
                case AnnotationFiles():
                    return self._annotations(data_format).masks(classes)
        entries = self._read(data_format, classes)
        if not self.masks and isinstance(data_format, Coco) and isinstance(entries, Records):
            return self._require_masks(MaskDataset(entries.classes, coco_masks(data_format.path, entries)))
        paths = _as_paths(self.masks)
        if not paths and isinstance(data_format, Table):
            paths = [*_as_paths(self.images), *default_image_paths(data_format.path)]
        readers = find_mask_files(entries.image_ids, paths, any_folder=bool(self.masks))
        if self.masks and not readers and entries.image_ids:
            raise DataError(
                f"{', '.join(str(path) for path in paths)}: no masks were found, such as {entries.image_ids[0]}.png",
                "name their folder or zip with {masks}, where the mask of dog.jpg is dog.png",
            )
        return self._require_masks(MaskDataset(entries.classes, readers))

    def masks_if_any(self, classes: Sequence[str] | None = None) -> MaskDataset | None:
        """Open the masks if the source has some; masks that were named must exist.

        Args:
            classes: As in `open_masks`.
        """
        try:
            return self.open_masks(classes)
        except DataError as error:
            if self.masks:
                raise
            logger.debug("%s: opened without masks (%s)", self.path, error)
            return None

    def describe(self) -> dict[str, Any]:
        """Fields as plain values, for the configuration of a run; equal for different spellings of a path."""
        fields = asdict(self)
        fields["path"] = self.path if is_built_in(self.path) else _folder_text(os.path.normpath(self.path))
        fields["images"] = tuple(map(os.path.normpath, self.images))
        fields["masks"] = tuple(map(os.path.normpath, self.masks))
        return {name: value for name, value in fields.items() if value}

    def located(self) -> "DataSource":
        """Copy whose paths do not depend on the current folder."""
        if is_built_in(self.path):
            return self
        paths = {"path": os.path.abspath(expand_home(self.path))}  # noqa: PTH100  keeps symbolic links
        images, masks = (
            tuple(os.path.abspath(path) for path in _as_paths(texts))  # noqa: PTH100
            for texts in (self.images, self.masks)
        )
        sbd = None if self.sbd is None else os.path.abspath(expand_home(self.sbd))  # noqa: PTH100
        return DataSource(**{**asdict(self), **paths, "images": images, "masks": masks, "sbd": sbd})

    @classmethod
    def from_description(cls, fields: Any) -> "DataSource":
        """Source that `describe` described; other entries of the mapping are ignored."""
        return cls(**validated(_Description, fields, "the description of a data source", "train again"))

    def _detect_folder(self, path: Path) -> DataFormat:
        split = self.split
        if found := read_pseudo_label_source(path):
            fields, classes = found
            images = {"images": self.images} if self.images else {}
            source = DataSource.from_description({**fields, **images})
            if not is_built_in(source.path) and expand_home(source.path).resolve() == path.resolve():
                raise DataError(f"{path}: its images are said to be in itself", "make the pseudo labels again")
            return PseudoLabels(path, source, classes)
        if is_cvat(path):  # before VOC, whose folders it has
            return AnnotationFiles("cvat", path, split)
        if yaml := find_yolo(path):
            return AnnotationFiles("yolo", yaml, split)
        if metadata := find_image_folder(path, split):
            return AnnotationFiles("image-folder", metadata)
        if voc := find_voc(path, Path(self.sbd) if self.sbd else None):
            return Voc(voc, split or ("train_aug" if voc.sbd else "train"))
        if coco := find_coco(path, split):
            return Coco(coco)
        for folder, column_value in [(path / split, None), (path, split)] if split else [(path, None)]:
            for suffix in TABLE_SUFFIXES:
                if (folder / f"metadata{suffix}").is_file():
                    return Table(folder / f"metadata{suffix}", column_value)
        for suffix in TABLE_SUFFIXES:
            if split and (path / f"{split}{suffix}").is_file():
                return Table(path / f"{split}{suffix}", None)
        if is_mask_folder(path):
            return MaskFolders(path)
        if not _has_image_files(path):  # otherwise shards are archives that were left beside class folders
            if files := find_shards(path, ARROW_SUFFIXES, split):
                return Arrow(tuple(files))
            if files := find_shards(path, [TAR_SUFFIX], split):
                return WebDataset(tuple(files))
        return ClassFolders(path, split)

    def _read_kept(self, classes: Sequence[str] | None) -> "Records | ImageDataset":
        """Read the records with the classes that are kept."""
        if not self.classes:
            return self._read(self.detect(), classes)
        entries = self._read(self.detect(), None)
        choice = ClassChoice.parse(self.classes, entries.classes, classes, self.path)
        return choice.records(entries) if isinstance(entries, Records) else choice.images(entries)

    def _read(self, data_format: DataFormat, classes: Sequence[str] | None) -> "Records | ImageDataset":
        """Read the records of a source; the built-in dataset, which has no files, comes as a dataset."""
        images = _as_paths(self.images)
        match data_format:
            case Shapes(count, split):
                self._require_classes(classes, SHAPE_CLASSES)
                return shapes(count, split=split)
            case Table(path, split):
                return read_table(path, images=images, split=split, classes=classes, separator=self.separator)
            case Coco(path):
                return read_coco(path, images=images, classes=classes)
            case Voc(folders, split):
                self._require_classes(classes, VOC_CLASSES)
                return read_voc(folders, split=split)
            case Arrow(files):
                return read_arrow(files, classes=classes, separator=self.separator)
            case WebDataset(files):
                return read_webdataset(files, classes=classes, separator=self.separator)
            case ClassFolders(path, split):
                return read_class_folders(path, split=split, classes=classes)
            case MaskFolders(path):
                return read_mask_folders(path, classes)
            case PseudoLabels(_, source, names):
                self._require_classes(classes, names)
                return source._read_kept(names)
            case AnnotationFiles():
                return self._annotations(data_format).records(classes)

    def _annotations(self, data_format: AnnotationFiles) -> Annotations:
        """Read the images of an annotation tool."""
        images, path, split = _as_paths(self.images), data_format.path, data_format.split
        match data_format.tool:
            case "yolo":
                return read_yolo(path, split)
            case "cvat":
                return read_cvat(path, split, images)
            case "label-studio":
                return read_label_studio(path, images)
            case "image-folder":
                return read_image_folder(path, images)

    def _require_classes(self, classes: Sequence[str] | None, fixed: Sequence[str]) -> None:
        if classes is not None and tuple(classes) != tuple(fixed):
            raise DataError(
                f"{self.path}: has the classes {', '.join(fixed)}, but the model has {', '.join(classes)}",
                "use a model and data of the same classes",
            )

    def _require_masks(self, masks: MaskDataset) -> MaskDataset:
        if not len(masks):
            raise DataError(
                f"{self.path}: no masks were found",
                "name their folder or zip with {masks}, where the mask of dog.jpg is dog.png",
            )
        return masks


def is_built_in(path: str) -> bool:
    """Whether a path names the built-in dataset."""
    return path.partition(":")[0] == "shapes"


def _folder_text(path: str) -> str:
    """Text of a path that is a file or folder, even if it is called like the built-in dataset."""
    return f"./{path}" if is_built_in(path) else path


def _has_image_files(folder: Path) -> bool:
    """Whether a folder has images below folders of classes or of splits."""
    return any(path.suffix.lower() in IMAGE_SUFFIXES for depth in ("*/*", "*/*/*") for path in folder.glob(depth))


def _shapes_count(path: str) -> int:
    count = path.partition(":")[2] or "500"
    if not (count.isascii() and count.isdecimal()):
        raise DataError(f"{path}: the number of images is not a whole number", "write for example shapes:500")
    return int(count)


def _as_texts(paths: Paths) -> tuple[str, ...]:
    if paths is None:
        return ()
    return tuple(str(path) for path in ([paths] if isinstance(paths, str | Path) else paths))


def _as_paths(texts: Iterable[str]) -> list[Path]:
    return [expand_home(text) for text in texts]
