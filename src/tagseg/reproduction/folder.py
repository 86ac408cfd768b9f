"""VOC's images for the paper's tables, out of the folder that a person has."""

from dataclasses import dataclass
from pathlib import Path

from tagseg.data import DataError, DataSource
from tagseg.data.voc import find_voc


@dataclass(frozen=True)
class VocSources:
    """The images that the paper's tables need.

    Attributes:
        train_aug: the 10,582 images to learn from.
        val: the images to measure on, with masks.
        train: those of VOC's `train`, with masks: pseudo labels are measured on them.
    """

    train_aug: DataSource
    val: DataSource
    train: DataSource


def open_voc(folder: Path) -> VocSources:
    """Find VOC's images, as the archives unpack or packed.

    Args:
        folder: VOCdevkit/VOC2012 with SBD's benchmark_RELEASE beside VOCdevkit; or a folder with train_aug.csv and
            val.csv, the zips of their images (val.zip with masks), and train-masks.zip.
    """
    tables = {name: folder / f"{name}.csv" for name in ("train_aug", "val")}
    if all(table.is_file() for table in tables.values()):
        learn = str(tables["train_aug"])
        # Of these images only those with a mask are measured, and train-masks.zip has the masks of `train`.
        train = DataSource(learn, masks=(str(folder / "train-masks.zip"),))
        return VocSources(DataSource(learn), DataSource(str(tables["val"])), train)
    if find_voc(folder) is None:
        raise DataError(
            f"{folder}: is not VOC 2012; name VOCdevkit/VOC2012, or a folder with train_aug.csv, val.csv and their zips"
        )
    return VocSources(*(DataSource(str(folder), split=split) for split in ("train_aug", "val", "train")))
