"""WebDataset shards, as the library webdataset writes them."""

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
import webdataset
from torch.utils.data import DataLoader

import tagseg
from tagseg.data import DataError, DataSource
from tagseg.predict.sources import FileSource, find_sources
from tests.data.small_datasets import BLUE, GREEN, RED, image_bytes, write_image, write_mask
from tests.data.test_tables import labels_by_id

SAMPLES: list[dict[str, Any]] = [
    {"__key__": "a/1", "jpg": image_bytes(RED, suffix="jpg"), "json": {"label": ["cat", "red car"], "width": 12}},
    {"__key__": "a/2", "png": image_bytes(GREEN), "cls": "cat"},
    {"__key__": "a/3", "webp": image_bytes(BLUE, suffix="webp"), "txt": "dog"},
    {"__key__": "b/1", "png": image_bytes(BLUE), "json": {"width": 12}, "txt": ""},
]


def write_shard(path: Path, samples: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with webdataset.TarWriter(str(path), encoder=True) as writer:
        for sample in samples:
            writer.write({name: value.encode() if name == "cls" else value for name, value in sample.items()})
    return path


def write_tar(path: Path, members: dict[str, bytes], mode: Any = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return write_shard(tmp_path / "x.tar", SAMPLES)


def test_images_and_labels_are_read(shard: Path) -> None:
    dataset = DataSource(shard).open()
    assert dataset.classes == ("cat", "dog", "red car")
    assert labels_by_id(dataset) == {"a/1": {"cat", "red car"}, "a/2": {"cat"}, "a/3": {"dog"}, "b/1": set()}
    assert dataset[1][0][:, 0, 0].tolist() == list(GREEN)
    assert dataset[3][0][:, 0, 0].tolist() == list(BLUE)
    assert torch.equal(pickle.loads(pickle.dumps(dataset))[0][0], dataset[0][0])


def test_workers_read_the_same_images(shard: Path) -> None:
    dataset = DataSource(shard).open()
    expected = torch.stack([dataset[index][0] for index in range(4)])
    loader = DataLoader(dataset, batch_size=1, num_workers=2)
    assert torch.equal(torch.cat([image for image, _ in loader]), expected)


def test_shards_of_a_folder_are_one_dataset_and_its_names_are_splits(tmp_path: Path) -> None:
    samples = [{"__key__": "1", "png": image_bytes(), "cls": "cat"}]
    for name in ("train-000000.tar", "train-000001.tar", "val-000000.tar"):
        write_shard(tmp_path / name, samples)
    assert DataSource(tmp_path, split="train").open().image_ids == ("train-000000/1", "train-000001/1")
    assert DataSource(tmp_path, split="val").open().image_ids == ("1",)
    with pytest.raises(DataError, match="holds the splits train, val; name one of them with split="):
        DataSource(tmp_path).open()


def test_masks_are_found_by_the_names_of_samples(shard: Path) -> None:
    write_mask(shard.parent / "masks" / "a" / "2.png", 1)
    assert list(DataSource(shard, masks=shard.parent / "masks").open_masks()) == ["a/2"]


def test_archive_beside_class_folders_is_no_dataset(shard: Path) -> None:
    write_image(shard.parent / "dog" / "1.png")
    assert DataSource(shard.parent).open().classes == ("dog",)


def test_check_reads_the_images(shard: Path) -> None:
    report = tagseg.check(shard)
    assert (report.image_count, report.unreadable, report.unlabeled) == (4, (), ("b/1",))


def test_prediction_takes_a_tar_and_its_members(shard: Path) -> None:
    sources = find_sources([shard, f"{shard}:a/2.png"]).images
    assert [source.name for source in sources] == ["a/1", "a/2", "a/3", "b/1", "a/2-2"]
    assert isinstance(sources[-1], FileSource)
    assert sources[-1].read()[0, 0].tolist() == list(GREEN)


def test_damaged_image_does_not_affect_others(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "x.tar", {"1.png": b"broken", "1.cls": b"0", "2.png": image_bytes(), "2.cls": b"1"})
    dataset = DataSource(shard).open()
    with pytest.raises(DataError, match=r"x\.tar:1\.png: is not an image that can be read"):
        dataset[0]
    assert dataset[1][0].shape == (3, 8, 12)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"1.png": b"", "2.cls": b"0"}, r"x\.tar:1\.png: has no labels; add a \.json such as {\"labels\": \[\]}"),
        ({"1.png": b"", "1.json": b'{"width": 3}'}, r"x\.tar:1\.png: has no labels"),
        ({"1.png": b"", "1.json": b"{"}, r"x\.tar:1\.json: is not valid JSON .*; correct it or remove it"),
        ({"1.png": b"", "1.txt": b"\xff"}, r"x\.tar:1\.txt: cannot be read as txt"),
        ({"1.cls": b"0"}, r"x\.tar: holds no images; pack samples such as 0001\.jpg and 0001\.json"),
        ({"1.png": b"", "1.txt": b"hot dog", "2.png": b"", "2.txt": b"dog"}, "labels can be read in two ways"),
    ],
)
def test_samples_without_labels_are_errors(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        DataSource(write_tar(tmp_path / "x.tar", members)).open()
    assert "\n" not in str(caught.value)


def test_labels_may_be_null_or_a_list_alone(tmp_path: Path) -> None:
    labels = {"1": {"labels": None}, "2": ["cat", "dog"], "3": {"class": 0}}
    members = {f"{name}.json": json.dumps(value).encode() for name, value in labels.items()}
    shard = write_tar(tmp_path / "x.tar", {**members, **{f"{name}.png": image_bytes() for name in labels}})
    assert labels_by_id(DataSource(shard).open()) == {"1": set(), "2": {"cat", "dog"}, "3": {"0"}}


def test_separator_and_classes_apply(shard: Path) -> None:
    source = DataSource(shard, classes="vehicle=red car,dog")
    assert source.open().labels.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]
    texts = write_tar(shard.parent / "y.tar", {"1.png": image_bytes(), "1.txt": b"hot dog"})
    assert DataSource(texts, separator=" ").open().classes == ("dog", "hot")
