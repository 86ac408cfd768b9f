"""What a source is: told from its name and from what lies in its folder."""

from dataclasses import dataclass
from pathlib import Path

from tagseg.data.coco import find_coco
from tagseg.data.voc import VocFolders, find_voc
from tagseg.errors import DataError

_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class Shapes:
    """The built-in dataset."""

    count: int
    split: str


@dataclass(frozen=True)
class Table:
    """A CSV, TSV or JSON lines file."""

    path: Path
    split: str | None


@dataclass(frozen=True)
class Coco:
    """An instances JSON."""

    path: Path


@dataclass(frozen=True)
class Voc:
    """VOC 2012 and perhaps SBD."""

    folders: VocFolders
    split: str


@dataclass(frozen=True)
class ClassFolders:
    """A folder per class."""

    path: Path
    split: str | None


DataFormat = Shapes | Table | Coco | Voc | ClassFolders


def recognise(source: str | Path, *, split: str | None = None, sbd: Path | None = None) -> DataFormat:
    """Tell which of the known kinds a source is, without reading its images."""
    if isinstance(source, str) and source.partition(":")[0] == "shapes":
        return Shapes(_count(source), split or "train")
    path = Path(source).expanduser()
    if path.is_dir():
        return _recognise_folder(path, split, sbd)
    if not path.exists():
        raise DataError(
            f"{source}: does not exist; name a CSV, TSV, JSON lines or COCO JSON file, a folder, or 'shapes'"
        )
    if path.suffix.lower() in _TABLES:
        return Table(path, split)
    if path.suffix.lower() == ".json":
        return Coco(path)
    raise DataError(f"{source}: is of no known kind; name a file ending in {', '.join(_TABLES)} or .json, or a folder")


def _recognise_folder(path: Path, split: str | None, sbd: Path | None) -> DataFormat:
    if voc := find_voc(path, sbd):
        return Voc(voc, split or ("train_aug" if voc.sbd else "train"))
    if coco := find_coco(path, split):
        return Coco(coco)
    for folder, rest in [(path / split, None), (path, split)] if split else [(path, None)]:
        for ending in _TABLES:
            if (folder / f"metadata{ending}").is_file():
                return Table(folder / f"metadata{ending}", rest)
    for ending in _TABLES:
        if split and (path / f"{split}{ending}").is_file():
            return Table(path / f"{split}{ending}", None)
    return ClassFolders(path, split)


def _count(source: str) -> int:
    number = source.partition(":")[2] or "500"
    if not number.isdecimal():
        raise DataError(f"{source}: the number of images is not a whole number; write for example shapes:500")
    return int(number)
