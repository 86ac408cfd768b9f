"""VOC 2012 and SBD in the layout of their archives."""

from pathlib import Path

import numpy as np
import pytest

from tagseg.data import DataError, DataSource, ImageDataset
from tests.data.small_datasets import write_sbd_mat, write_text, write_voc


def labels_by_id(dataset: ImageDataset) -> dict[str, list[str]]:
    return {
        image_id: [dataset.classes[int(c)] for c in labels.nonzero()]
        for image_id, labels in zip(dataset.image_ids, dataset.labels, strict=True)
    }


def test_train_aug_is_voc_train_and_sbd_without_voc_val(tmp_path: Path) -> None:
    dataset = DataSource(write_voc(tmp_path)).open()
    assert labels_by_id(dataset) == {"a1": ["dog", "person"], "c1": ["bus"], "d1": ["tvmonitor"]}
    assert len(dataset.classes) == 20
    assert [dataset[i][0].shape for i in range(3)] == [(3, 8, 12)] * 3


@pytest.mark.parametrize("root", [".", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_any_folder_of_the_archive_can_be_opened(tmp_path: Path, root: str) -> None:
    write_voc(tmp_path)
    assert DataSource(tmp_path / root, split="val").open().image_ids == ("b1", "b2")
    augmented = DataSource(tmp_path / root, split="train_aug", sbd=tmp_path / "benchmark_RELEASE").open()
    assert augmented.image_ids[-1] == "d1"


def test_masks_come_from_voc_or_else_from_sbd(tmp_path: Path) -> None:
    masks = DataSource(write_voc(tmp_path), split="train_aug").open_masks()
    assert list(masks) == ["a1", "c1", "d1"]
    assert np.unique(masks["a1"]).tolist() == [12]
    assert np.unique(masks["d1"]).tolist() == [0, 20]
    assert masks["d1"].dtype == np.uint8
    assert set(DataSource(tmp_path, split="val").open_masks()) == {"b1", "b2"}


def test_voc_is_opened_without_sbd(tmp_path: Path) -> None:
    voc = write_voc(tmp_path / "here").rename(tmp_path / "moved") / "VOCdevkit" / "VOC2012"
    (tmp_path / "moved" / "benchmark_RELEASE").rename(tmp_path / "hidden")
    assert DataSource(voc).open().image_ids == ("a1",)
    with pytest.raises(DataError, match="train_aug needs SBD too; unpack benchmark_RELEASE beside it"):
        DataSource(voc, split="train_aug").open()
    with pytest.raises(DataError, match="holds no dataset/cls"):
        DataSource(voc, split="train_aug", sbd=tmp_path / "moved").open()
    assert len(DataSource(voc, split="train_aug", sbd=tmp_path / "hidden").open()) == 3


@pytest.mark.parametrize("category", [0, 21])
def test_sbd_category_out_of_range_is_an_error(tmp_path: Path, category: int) -> None:
    write_voc(tmp_path)
    write_sbd_mat(tmp_path / "benchmark_RELEASE/dataset/cls/d1.mat", category)
    with pytest.raises(DataError, match=rf"d1\.mat: is not an SBD annotation \(categories \[{category}\]\)"):
        DataSource(tmp_path).open()


def test_error_names_the_file(tmp_path: Path) -> None:
    voc = write_voc(tmp_path) / "VOCdevkit" / "VOC2012"
    with pytest.raises(DataError, match=r"VOC2012: unknown split 'vall'.*Did you mean 'val'"):
        DataSource(tmp_path, split="vall").open()
    with pytest.raises(DataError, match="has the classes aeroplane, .*, but the model has"):
        DataSource(tmp_path).open(["dog"])
    (tmp_path / "benchmark_RELEASE/dataset/cls/d1.mat").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"d1\.mat: is not an SBD annotation"):
        DataSource(tmp_path).open()
    write_text(voc / "Annotations" / "a1.xml", "<annotation>")
    with pytest.raises(DataError, match=r"a1\.xml: is not valid XML"):
        DataSource(tmp_path, split="train").open()
    (voc / "Annotations" / "b2.xml").unlink()
    with pytest.raises(DataError, match=r"b2\.xml: does not exist, so the labels of b2 are unknown"):
        DataSource(tmp_path, split="val").open()
