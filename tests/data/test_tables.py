"""CSV, TSV and JSON-lines tables, with images in folders and zips."""

import tarfile
from pathlib import Path

import pytest

from tagseg.data import DataError, DataSource, ImageDataset
from tests.data.small_datasets import BLUE, GREEN, RED, image_bytes, write_image, write_text, write_zip


def labels_by_id(dataset: ImageDataset) -> dict[str, set[str]]:
    return {
        image_id: {dataset.classes[int(c)] for c in labels.nonzero()}
        for image_id, labels in zip(dataset.image_ids, dataset.labels, strict=True)
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", RED)
    write_image(tmp_path / "b.png", GREEN)
    return tmp_path


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".csv", "image,labels\na.png,cat dog\nb.png,dog\nc.png,cat\n"),
        (".csv", "a.png,cat dog\nb.png,dog\nc.png,cat\n"),
        (".csv", "filename,cat,dog\na.png,1,1\nb.png,0,1\n"),
        (".csv", "filename,split,cat,dog\na,train,1.0,True\nb,train,0.0,True\n"),
        (".tsv", "photo\tcat\tdog\na.png\t1\t1\nb.png\t0\t1\n"),
        (".csv", "filename,tags\na.png,cat|dog\nb.png,dog\n"),
        (".csv", 'image,labels\na.png,"cat,dog"\nb.png,dog\n'),
        (".csv", 'image,labels\n"a.png","cat, dog"\n"b.png","dog"\n'),
        (".csv", "image,labels\na.png,cat;dog\nb.png,dog\n"),
        (".csv", "image,labels\na.png,cat | dog\nb.png,dog\n"),
        (".csv", "image;labels\na.png;cat,dog\nb.png;dog\n"),
        (".csv", "image,labels\na.png,cat,dog\nb.png,dog\n"),
        (".csv", "a.png,cat,dog\nb.png,dog\n"),
        (".csv", "image,labels\na.png,cat\na.png,dog\nb.png,dog\n"),
        (".csv", "\ufeffimage,labels\r\na.png,cat dog\r\n\r\nb.png,dog\r\nc.png,cat\r\n"),
        (".csv", "width,file_name,tags,split\n3,a.png,cat dog,train\n3,b.png,dog,train\n3,c.png,cat,train\n"),
        (".csv", "image,what\na.png,cat dog\nb.png,dog\nc.png,cat\n"),
        (".csv", "image,labels\na,cat;dog\nb,dog\n"),
        (".csv", "image,labels\na.png,\"['cat', 'dog']\"\nb.png,['dog']\n"),
        (".csv", 'image,labels\na.png,"[""cat"", ""dog""]"\nb.png,"[""dog""]"\n'),
        (".csv", "image,labels\na.png,['cat', 'dog']\nb.png,['dog']\n"),
        (".tsv", "image\tlabels\na.png\tcat dog\nb.png\tdog\nc.png\tcat\n"),
        (".tsv", "a.png\tcat,dog\nb.png\tdog\n"),
        (".jsonl", '{"file_name": "a.png", "labels": ["cat", "dog"]}\n\n{"file_name": "b.png", "labels": ["dog"]}\n'),
        (".jsonl", '{"file_name": "a.png", "label": "cat, dog"}\n{"file_name": "b.png", "label": "dog"}\n'),
    ],
)
def test_all_dialects_give_the_same_dataset(folder: Path, suffix: str, text: str) -> None:
    dataset = DataSource(write_text(folder / f"table{suffix}", text)).open(skip_missing=True)
    assert dataset.classes == ("cat", "dog")
    assert labels_by_id(dataset) == {"a": {"cat", "dog"}, "b": {"dog"}}
    assert dataset.labels.tolist() == [[1, 1], [0, 1]]
    assert dataset[0][0][:, 0, 0].tolist() == list(RED)


def test_class_names_may_contain_spaces(folder: Path) -> None:
    table = write_text(folder / "t.csv", "image,labels\na.png,traffic light;dog\nb.png,traffic light\n")
    assert DataSource(table).open().classes == ("dog", "traffic light")
    table = write_text(folder / "u.csv", "image,labels\na.png,traffic light\nb.png,red car\n")
    assert DataSource(table).open().classes == ("red car", "traffic light")
    table = write_text(folder / "v.jsonl", '{"file_name": "a.png", "labels": ["traffic light", "a, b"]}\n')
    assert DataSource(table).open().classes == ("a, b", "traffic light")


def test_ambiguous_table_is_refused_with_both_readings(folder: Path) -> None:
    table = write_text(folder / "t.csv", "image,label\na.png,hot dog\nb.png,dog\n")
    with pytest.raises(DataError) as caught:
        DataSource(table).open()
    assert str(caught.value) == (
        f"{table}: labels can be read in two ways: separated by ' ' they are 'dog', 'hot'; as whole names they are "
        "'dog', 'hot dog'; choose with separator=: ' ' for the first, ';' for the second"
    )
    assert DataSource(table, separator=" ").open().classes == ("dog", "hot")
    assert DataSource(table, separator=";").open().classes == ("dog", "hot dog")
    assert DataSource(table).open(("cat", "dog", "hot")).labels.tolist() == [[0, 1, 1], [0, 1, 0]]


def test_separator_is_that_of_the_whole_table_for_every_split(folder: Path) -> None:
    table = write_text(folder / "t.csv", "image,labels,split\na.png,cat;dog,train\nb.png,hot dog,val\n")
    assert DataSource(table, split="val").open().classes == ("hot dog",)


def test_columns_of_classes_keep_their_order_and_absent_classes(folder: Path) -> None:
    table = write_text(folder / "t.csv", "filename,zebra,dog,Cat\na.png,0,1,0\nb.png,0,0,0\n")
    dataset = DataSource(table).open()
    assert dataset.classes == ("zebra", "dog", "Cat")
    assert dataset.labels.tolist() == [[0, 1, 0], [0, 0, 0]]


def test_image_without_labels_is_kept(folder: Path) -> None:
    dataset = DataSource(write_text(folder / "t.csv", "image,labels\na.png,cat\nb.png,\n")).open()
    assert labels_by_id(dataset) == {"a": {"cat"}, "b": set()}


def test_images_are_found_in_a_named_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = write_text(tmp_path_factory.mktemp("elsewhere") / "t.csv", "a.png,cat\nb.png,dog\n")
    assert len(DataSource(table, images=folder).open()) == 2
    assert len(DataSource(table, images=str(folder)).open()) == 2


def test_absolute_paths_are_found(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = write_text(tmp_path_factory.mktemp("elsewhere") / "t.csv", f"{folder / 'a.png'},cat\n")
    assert DataSource(table).open()[0][0].shape == (3, 8, 12)


def test_images_are_found_in_zips_named_like_the_table(tmp_path: Path) -> None:
    write_zip(tmp_path / "t-0.zip", {"images/a.png": image_bytes(RED)})
    write_zip(tmp_path / "t-1.zip", {"images/b.png": image_bytes(GREEN), "masks/b.png": b"not an image"})
    write_zip(tmp_path / "t-masks.zip", {"masks/a.png": b"not an image"})
    dataset = DataSource(write_text(tmp_path / "t.csv", "image,labels\na.png,cat\nb,dog\n")).open()
    assert dataset[0][0][:, 0, 0].tolist() == list(RED)
    assert dataset[1][0][:, 0, 0].tolist() == list(GREEN)


def test_images_are_found_in_named_zips(tmp_path: Path) -> None:
    first = write_zip(tmp_path / "x.zip", {"deep/er/a.png": image_bytes(RED)})
    second = write_zip(tmp_path / "y.zip", {"b.png": image_bytes(GREEN)})
    table = write_text(tmp_path / "t.csv", "er/a.png,cat\nb.png,dog\n")
    assert DataSource(table, images=[first, second]).open().image_ids == ("er/a", "b")


def test_imagefolder_with_metadata_and_splits_is_read(tmp_path: Path) -> None:
    for split, color in (("train", RED), ("test", BLUE)):
        write_image(tmp_path / split / "0001.jpg", color)
        write_text(tmp_path / split / "metadata.jsonl", '{"file_name": "0001.jpg", "labels": ["cat"]}\n')
    assert labels_by_id(DataSource(tmp_path, split="test").open()) == {"0001": {"cat"}}
    assert labels_by_id(DataSource(tmp_path / "train").open()) == {"0001": {"cat"}}
    write_text(tmp_path / "metadata.csv", "file_name,labels\ntrain/0001.jpg,cat\ntest/0001.jpg,dog\n")
    assert labels_by_id(DataSource(tmp_path).open()) == {"train/0001": {"cat"}, "test/0001": {"dog"}}


def test_split_is_a_column_value_or_a_file(folder: Path) -> None:
    table = write_text(folder / "all.csv", "image,labels,split\na.png,cat,train\nb.png,dog,val\n")
    assert DataSource(table, split="val").open().image_ids == ("b",)
    with pytest.raises(DataError, match="known: train, val"):
        DataSource(table, split="test").open()
    with pytest.raises(DataError, match="has no column 'split'; leave out split= or add the column"):
        DataSource(write_text(folder / "plain.csv", "a.png,cat\n"), split="val").open()
    write_text(folder / "holdout.csv", "b.png,dog\n")
    assert DataSource(folder, split="holdout").open().image_ids == ("b",)


def test_dots_in_names_are_not_suffixes(tmp_path: Path) -> None:
    write_image(tmp_path / "v1.2.png")
    write_image(tmp_path / "v1.3.png")
    table = write_text(tmp_path / "t.csv", "image,labels\nv1.2,cat\nv1.3.png,dog\n")
    assert DataSource(table).open().image_ids == ("v1.2", "v1.3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv: has no rows; write one line per image"),
        ("image,labels\n", r"t\.csv: has no rows"),
        ("image,labels\n,cat\n", r"t\.csv:2: names no image; write the image's file name in column 1"),
        ("image,labels\na.png,cat\nzz.png,cat\nyy.png,cat\n", r"t\.csv:3: no image 'zz\.png' and 1 more was found"),
        ("image,height,width\na.png,3,4\n", r"t\.csv:1: has no column 'labels' among image, height, width"),
        ("image,cat,crow\na.png,0,1\nb.png,1,x\n", r"t\.csv:3: has 'x' in the column 'crow' of a class; write 1 for"),
        ("image,cat,width\na.png,0,64\n", "keep only columns of 0 and 1, one for each class"),
        ("image,labels\na.png,[]\nb.png,['cat' 'crow']\n", r"t\.csv:3: holds a list that cannot be read: .*; write"),
        ("image,labels\na.png,['cat'\n", r"t\.csv:2: holds a list that cannot be read"),
        ("image,cat,cat\na.png,0,1\n", r"t\.csv:1: a class has no name or two columns"),
        ("image,labels\na.png,cow\n", r"t\.csv:2: unknown class 'cow'; known: cat, crow\. Did you mean 'crow'"),
    ],
)
def test_error_names_the_line_and_the_remedy(folder: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        DataSource(write_text(folder / "t.csv", text)).open(["cat", "crow"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"file_name": "a.png"', r"t\.jsonl:1: is not valid JSON"),
        ("[1]", r"t\.jsonl:1: is not a JSON object"),
        ('{"file_name": "a.png", "size": 3}', r"t\.jsonl:1: has no labels; its keys are file_name, size"),
    ],
)
def test_invalid_json_line_is_an_error_with_its_line(folder: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataSource(write_text(folder / "t.jsonl", text)).open()


def test_invalid_files_are_data_errors(folder: Path) -> None:
    table = write_text(folder / "t.csv", "a.png,cat\nb.png,dog\n")
    broken = write_text(folder / "broken.zip", "no zip")
    with pytest.raises(DataError, match=r"broken\.zip: is not a zip that can be read.*again$"):
        DataSource(table, images=broken).open()
    with pytest.raises(DataError, match="nowhere: does not exist"):
        DataSource(table, images=folder / "nowhere").open()
    (folder / "u.csv").write_bytes("image,labels\nä.png,cat".encode("utf-16"))
    with pytest.raises(DataError, match="save it as UTF-8"):
        DataSource(folder / "u.csv").open()
    with pytest.raises(DataError, match=r"missing\.csv: does not exist; name a table"):
        DataSource(folder / "missing.csv").open()
    with pytest.raises(DataError, match="classes: 'cat' is named twice"):
        DataSource(table).open(["cat", "dog", "cat"])
    with pytest.raises(DataError, match="has no known format"):
        DataSource(folder / "a.png").open()
    with tarfile.open(folder / "shard.tar.gz", "w:gz") as archive:
        archive.add(table, "t.csv")
    with pytest.raises(DataError, match=r"shard\.tar\.gz: is compressed; unpack it to a \.tar file or a folder"):
        DataSource(folder / "shard.tar.gz").open()


def test_ambiguous_image_name_is_an_error(tmp_path: Path) -> None:
    write_image(tmp_path / "x" / "1.png")
    write_image(tmp_path / "y" / "1.png")
    with pytest.raises(DataError, match=r"t\.csv:1: .*1\.png could be .*write more of its path"):
        DataSource(write_text(tmp_path / "t.csv", "1.png,cat\n")).open()
