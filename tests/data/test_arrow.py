"""Datasets that Hugging Face's `datasets` saved, as Arrow and as Parquet files."""

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import tagseg
from tagseg.data import DataError, DataSource
from tagseg.predict.sources import FileSource, find_sources
from tests.data.small_datasets import GREEN, image_bytes, write_image, write_mask, write_text
from tests.data.test_tables import labels_by_id

datasets.disable_progress_bars()

NAMES = ["cat", "dog", "red car"]
COLORS = [(200, 30, value) for value in (0, 50, 100, 150)]
LABELS = [["cat"], ["cat", "dog"], [], ["dog"]]


def make_dataset(values: list[Any], feature: Any, column: str = "labels") -> datasets.Dataset:
    images = [Image.new("RGB", (12, 8), color) for color in COLORS]
    features = datasets.Features({"image": datasets.Image(), column: feature})
    return datasets.Dataset.from_dict({"image": images, column: values}, features=features)


@pytest.fixture
def dataset() -> datasets.Dataset:
    numbers = [[NAMES.index(name) for name in labels] for labels in LABELS]
    return make_dataset(numbers, datasets.Sequence(datasets.ClassLabel(names=NAMES)))


def save_folder(dataset: datasets.Dataset, root: Path) -> Path:
    dataset.save_to_disk(root / "saved", num_shards=2)
    return root / "saved"


def save_parquet_file(dataset: datasets.Dataset, root: Path) -> Path:
    dataset.to_parquet(root / "x.parquet", batch_size=3)
    return root / "x.parquet"


def save_parquet_shards(dataset: datasets.Dataset, root: Path) -> Path:
    (root / "hub" / "data").mkdir(parents=True)
    for number in range(2):
        path = root / "hub" / "data" / f"train-{number:05d}-of-00002.parquet"
        dataset.shard(2, number, contiguous=True).to_parquet(path)
    return root / "hub"


@pytest.mark.parametrize("save", [save_folder, save_parquet_file, save_parquet_shards])
def test_images_labels_and_class_names_are_read(
    dataset: datasets.Dataset, tmp_path: Path, save: Callable[[datasets.Dataset, Path], Path]
) -> None:
    opened = DataSource(save(dataset, tmp_path)).open()
    assert opened.classes == tuple(NAMES)
    assert list(labels_by_id(opened).values()) == [set(labels) for labels in LABELS]
    assert opened.image_ids == ("000000", "000001", "000002", "000003")
    for index in (3, 0, 2, 1):
        assert opened[index][0][:, 0, 0].tolist() == list(COLORS[index])
    assert torch.equal(pickle.loads(pickle.dumps(opened))[1][0], opened[1][0])


@pytest.mark.parametrize(
    ("values", "feature", "column", "classes"),
    [
        ([0, 1, 0, 2], datasets.ClassLabel(names=NAMES), "label", NAMES),
        ([0, 1, 0, 2], datasets.ClassLabel(names=NAMES), "animal", NAMES),
        ([["dog"], ["red car", "dog"], [], ["cat"]], datasets.Sequence(datasets.Value("string")), "tags", NAMES),
        (["cat", "dog", "red car", "cat"], datasets.Value("string"), "label", NAMES),
        (["cat;dog", "dog", "", "red car"], datasets.Value("string"), "tags", NAMES),
        ([0, 1, 2, 2], datasets.Value("int64"), "label", ["0", "1", "2"]),
    ],
)
def test_labels_are_numbers_names_or_lists(
    tmp_path: Path, values: list[Any], feature: Any, column: str, classes: list[str]
) -> None:
    opened = DataSource(save_parquet_file(make_dataset(values, feature, column), tmp_path)).open()
    assert opened.classes == tuple(classes)
    assert len(opened) == 4


def test_splits_are_folders_or_prefixes(dataset: datasets.Dataset, tmp_path: Path) -> None:
    datasets.DatasetDict({"train": dataset, "test": dataset.select([3])}).save_to_disk(tmp_path / "saved")
    hub = save_parquet_shards(dataset, tmp_path)
    dataset.select([3]).to_parquet(hub / "data" / "test-00000-of-00001-0a1b2c.parquet")
    for root in (tmp_path / "saved", hub):
        assert (len(DataSource(root, split="train").open()), len(DataSource(root, split="test").open())) == (4, 1)
        with pytest.raises(DataError, match="holds the splits test, train; name one of them with split="):
            DataSource(root).open()
        with pytest.raises(DataError, match="unknown split 'val'; known: test, train"):
            DataSource(root, split="val").open()


def test_file_names_become_image_ids_where_they_are_unique(tmp_path: Path) -> None:
    def write(paths: list[str]) -> Path:
        rows = [{"image": {"bytes": image_bytes(), "path": path}, "label": "cat"} for path in paths]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
        return tmp_path / "x.parquet"

    assert DataSource(write(["a/1.png", "b/1.png"])).open().image_ids == ("a/1", "b/1")
    write_mask(tmp_path / "masks" / "a" / "1.png", 1)
    assert list(DataSource(tmp_path / "x.parquet", masks=tmp_path / "masks").open_masks()) == ["a/1"]


def test_repeated_file_names_are_not_one_image(tmp_path: Path) -> None:
    rows = [{"image": {"bytes": image_bytes(), "path": "1.png"}, "label": name} for name in ("cat", "dog")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    assert DataSource(tmp_path / "x.parquet").open().image_ids == ("000000", "000001")


@pytest.mark.parametrize("save", [save_folder, save_parquet_file])
def test_workers_read_the_same_images(
    dataset: datasets.Dataset, tmp_path: Path, save: Callable[[datasets.Dataset, Path], Path]
) -> None:
    opened = DataSource(save(dataset, tmp_path)).open()
    expected = torch.stack([opened[index][0] for index in range(4)])  # a forked process inherits the open files
    loader = DataLoader(opened, batch_size=1, num_workers=2)
    assert torch.equal(torch.cat([image for image, _ in loader]), expected)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_images_stay_in_the_file(tmp_path: Path, kind: str) -> None:
    schema = pa.schema({"image": pa.binary(), "label": pa.string()})
    table = pa.table({"image": [image_bytes() + bytes(2**20)], "label": ["cat"]}, schema)
    path, rows = tmp_path / f"x.{kind}", 40
    if kind == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
            for _ in range(rows):
                stream.write_table(table)
    else:
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for _ in range(rows):
                writer.write_table(table)
    opened, allocated = DataSource(path).open(), []
    before = pa.total_allocated_bytes()
    for index in range(rows):
        opened.images.info(index)
        allocated.append(pa.total_allocated_bytes() - before)
    assert path.stat().st_size > rows * 2**20
    assert max(allocated) < 10 * 2**20


def test_large_row_group_is_refused(dataset: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagseg.data.arrow._MAX_ROW_GROUP", 10)
    with pytest.raises(DataError, match="x.parquet: a row group has .* MiB.*; write it with about 100 rows in a group"):
        DataSource(save_parquet_file(dataset, tmp_path)).open()[0]


def test_names_of_classes_come_from_dataset_info_without_metadata(dataset: datasets.Dataset, tmp_path: Path) -> None:
    folder = save_folder(dataset, tmp_path)
    for file in folder.glob("*.arrow"):
        table = pa.ipc.open_stream(file.read_bytes()).read_all().replace_schema_metadata(None)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    assert DataSource(folder).open().classes == tuple(NAMES)


def test_images_may_be_files_beside_the_table(tmp_path: Path) -> None:
    write_image(tmp_path / "1.png", GREEN)
    rows = [{"image": {"bytes": None, "path": "1.png"}, "label": "cat"}, {"image": None, "label": "dog"}]
    schema = pa.schema({"image": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "label": pa.string()})
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "x.parquet")
    opened = DataSource(tmp_path / "x.parquet").open()
    assert opened[0][0][:, 0, 0].tolist() == list(GREEN)
    with pytest.raises(DataError, match="x.parquet:1: has no image; remove the row"):
        opened[1]
    (tmp_path / "1.png").unlink()
    with pytest.raises(
        DataError, match=r"x.parquet:0: has only the path of its image, and .*1\.png does not exist; put"
    ):
        opened[0]


def test_check_and_prediction_read_the_images(dataset: datasets.Dataset, tmp_path: Path) -> None:
    path = save_parquet_file(dataset, tmp_path)
    report = tagseg.check(path)
    assert (report.image_count, report.unreadable, report.unlabeled) == (4, (), ("000002",))
    sources = [source for source in find_sources(path).images if isinstance(source, FileSource)]
    assert [source.read()[0, 0].tolist() for source in sources] == [list(color) for color in COLORS]


def test_damaged_files_are_data_errors(dataset: datasets.Dataset, tmp_path: Path) -> None:
    folder = save_folder(dataset, tmp_path)
    shard = next(folder.glob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-100])
    parquet = save_parquet_file(dataset, tmp_path)
    parquet.write_bytes(parquet.read_bytes()[:-100])
    for path, kind in (
        (folder, "an Arrow"),
        (write_text(tmp_path / "a.arrow", "no arrow"), "an Arrow"),
        (write_text(tmp_path / "b.arrow", ""), "an Arrow"),
        (parquet, "a Parquet"),
        (write_text(tmp_path / "c.parquet", "no parquet"), "a Parquet"),
    ):
        with pytest.raises(
            DataError, match=f"is not {kind} file that can be read .*; download or save it again"
        ) as caught:
            DataSource(path).open()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
@pytest.mark.parametrize("text", [b"labels", b"a.png", b"cat"])
def test_text_that_is_no_utf8_is_a_data_error(tmp_path: Path, suffix: str, text: bytes) -> None:
    table = pa.table({"image": [{"bytes": image_bytes(), "path": "a.png"}], "labels": [["cat"]]})
    path = tmp_path / f"x{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path, compression="none", use_dictionary=False)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    assert DataSource(path).open().image_ids == ("a",)
    path.write_bytes(path.read_bytes().replace(text, b"\xff" + text[1:]))
    with pytest.raises(DataError, match="file that can be read"):
        DataSource(path).open()[0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": [b""], "size": [3]}, "x.parquet: has no column of labels among image, size; images are a feature"),
        ({"label": ["cat"], "size": [3]}, "x.parquet: has no column of images among label, size"),
        ({"image": [b""], "label": [{"x": 1}]}, "x.parquet:0: its labels are neither names nor numbers"),
        ({"image": pa.array([], pa.binary()), "label": pa.array([], pa.string())}, "x.parquet: has no rows"),
    ],
)
def test_missing_columns_are_errors(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=message):
        DataSource(tmp_path / "x.parquet").open()


def test_unknown_labels_are_errors(tmp_path: Path) -> None:
    feature = datasets.ClassLabel(num_classes=3)
    unlabeled = save_parquet_file(make_dataset([-1, -1, -1, -1], feature, "label"), tmp_path)
    with pytest.raises(
        DataError, match="x.parquet:0: has the label -1, which means that it is unknown; choose another"
    ):
        DataSource(unlabeled).open()
    features = {"info": {"features": {"label": {"names": ["cat"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": [b""], "label": [1]}).replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(table, tmp_path / "y.parquet")
    with pytest.raises(DataError, match="y.parquet:0: has the label 1, but there are 1 classes"):
        DataSource(tmp_path / "y.parquet").open()
    two = make_dataset([0, 0, 0, 0], feature, "fine").add_column("coarse", [0, 0, 0, 0], feature=feature)
    with pytest.raises(DataError, match="has the columns of labels fine, coarse; rename one of them to label"):
        DataSource(save_parquet_file(two, tmp_path)).open()


def test_missing_library_is_an_error_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow; install it with: pip install 'tagseg\[hf\]'"):
        DataSource(write_text(tmp_path / "x.parquet", "")).open()
