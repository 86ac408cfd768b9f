"""VOC's images as the paper's tables need them: training images, validation images, images with pseudo labels."""

from dataclasses import dataclass
from pathlib import Path

from tagseg.data import DataError, DataSource
from tagseg.data.voc import find_voc


@dataclass(frozen=True)
class VocSources:
    """Datasets of the paper's tables.

    Attributes:
        train_aug: The 10,582 training images.
        val: The validation images, with masks.
        train: The images of VOC's `train`, with masks, on which pseudo labels are evaluated.
    """

    train_aug: DataSource
    val: DataSource
    train: DataSource


def open_voc(folder: Path) -> VocSources:
    """Find VOC's datasets in a folder.

    Args:
        folder: VOCdevkit/VOC2012 with SBD's benchmark_RELEASE beside VOCdevkit; or a folder with train_aug.csv and
            val.csv, the zips of their images (val.zip with masks), and train-masks.zip.
    """
    tables = {name: folder / f"{name}.csv" for name in ("train_aug", "val")}
    if all(table.is_file() for table in tables.values()):
        train_aug = str(tables["train_aug"])
        # Evaluation leaves out images without masks, and train-masks.zip has the masks of `train` only.
        train = DataSource(train_aug, masks=(str(folder / "train-masks.zip"),))
        return VocSources(DataSource(train_aug), DataSource(str(tables["val"])), train)
    if find_voc(folder) is None:
        raise DataError(
            f"{folder}: is not VOC 2012",
            "give VOCdevkit/VOC2012, or a folder with train_aug.csv, val.csv and their zips, as {voc}",
        )
    return VocSources(*(DataSource(str(folder), split=split) for split in ("train_aug", "val", "train")))
