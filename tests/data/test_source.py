"""`DataSource`: format detection, opening, and its description in a run's configuration."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tagseg.data import DataError, DataSource
from tagseg.data.source import ClassFolders, Coco, Shapes, Table, Voc
from tests.data.small_datasets import write_coco, write_image, write_mask, write_text, write_voc


def test_format_is_detected(tmp_path: Path) -> None:
    assert DataSource("shapes:7", split="val").detect() == Shapes(7, "val")
    table = write_text(tmp_path / "t.csv", "a.png,cat\n")
    assert DataSource(table, split="val").detect() == Table(table, "val")
    metadata = write_text(tmp_path / "hf" / "train" / "metadata.jsonl", "{}\n")
    assert DataSource(tmp_path / "hf", split="train").detect() == Table(metadata, None)
    coco = write_coco(tmp_path / "coco", [])
    assert DataSource(coco).detect() == DataSource(tmp_path / "coco", split="val").detect() == Coco(coco)
    voc = DataSource(write_voc(tmp_path / "voc")).detect()
    assert isinstance(voc, Voc)
    assert voc.split == "train_aug"
    (tmp_path / "empty").mkdir()
    assert DataSource(tmp_path / "empty").detect() == ClassFolders(tmp_path / "empty", None)


def test_built_in_dataset_opens_by_name() -> None:
    assert len(DataSource("shapes:7").open()) == 7
    assert len(DataSource("shapes").open()) == 500
    assert DataSource("shapes:3", split="val").open().image_ids[0].startswith("val")
    with pytest.raises(DataError, match="shapes:many: the number of images is not a whole number"):
        DataSource("shapes:many").open()
    with pytest.raises(DataError, match="shapes:3: has the classes disc, .*, but the model has cat; use a model and"):
        DataSource("shapes:3").open(["cat"])


def test_folder_may_be_called_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "shapes" / "dog" / "1.png")
    monkeypatch.chdir(tmp_path)
    for source in (DataSource(Path("shapes")), DataSource("./shapes")):
        assert source.open().classes == ("dog",)
        assert DataSource.from_description(source.describe()).open().classes == ("dog",)


def test_images_and_masks_may_be_one_path_or_several() -> None:
    one, several = DataSource("t.csv", images="photos", masks=Path("m")), DataSource("t.csv", ["photos"], None, ["m"])
    assert one == several
    assert one.images == ("photos",)
    assert DataSource.of(one) is one


def test_missing_images_are_an_error_or_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_image(tmp_path / "a.png")
    source = DataSource(write_text(tmp_path / "t.csv", "a.png,cat\nb.png,dog\n"))
    with pytest.raises(DataError, match=r"t\.csv:2: no image 'b\.png' was found; name its folder or zip with images="):
        source.open()
    assert source.open(skip_missing=True).image_ids == ("a",)
    assert caplog.messages == [f"{tmp_path / 't.csv'}:2: no image 'b.png' was found: left out"]
    dataset, records = source.open_available()
    assert (dataset.image_ids, [record.image for record in records.missing]) == (("a",), ["b.png"])


def test_masks_are_optional_unless_named(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    table = write_text(tmp_path / "t.csv", "a.png,cat\n")
    assert DataSource(table).masks_if_any() is None
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"none: no masks were found, such as a\.png; name their folder or zip with"):
        DataSource(table, masks=tmp_path / "none").masks_if_any()
    write_mask(tmp_path / "masks" / "a.png", 1)
    masks = DataSource(table).masks_if_any()
    assert masks is not None
    assert list(masks) == ["a"]


def test_source_can_be_restored_from_its_description() -> None:
    source = DataSource("data/t.csv", images=["a", "b"], split="val", masks="m", separator=";", sbd="sbd")
    restored = DataSource.from_description({**json.loads(json.dumps(source.describe())), "image_count": 3})
    assert restored == source
    assert DataSource("data//t.csv", images="a/").describe() == DataSource("data/t.csv", images="a").describe()
    with pytest.raises(DataError, match="the description of a data source: path: field required; train again"):
        DataSource.from_description({})
    for path in ("\ud800", "a\0b"):
        with pytest.raises(DataError, match="path: no file system has such a path"):
            DataSource.from_description({"path": path})


def test_error_names_options_on_the_command_line(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    with pytest.raises(DataError) as caught:
        DataSource(write_text(tmp_path / "t.csv", "b.png,cat\n")).open()
    assert "with images=" in str(caught.value)
    assert "with --images" in caught.value.for_cli()


def test_wrong_path_is_reported_without_importing_torch() -> None:
    code = """
import sys
from tagseg.data import DataError, DataSource
try:
    DataSource("nothere.csv").open()
except DataError as error:
    print(error)
print(sorted({"torch", "torchvision", "scipy", "rich", "pycocotools"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, modules = result.stdout.splitlines()
    assert message.startswith("nothere.csv: does not exist; name a table")
    assert modules == "[]"


def test_home_of_an_unknown_user_does_not_exist() -> None:
    with pytest.raises(DataError, match="~nouser/photos.csv: does not exist"):
        DataSource("~nouser/photos.csv").open()


def test_limit_takes_evenly_spaced_images() -> None:
    every = DataSource("shapes:10").open()
    data = DataSource("shapes:10", limit=4).open()
    assert data.image_ids == tuple(every.image_ids[i] for i in (0, 2, 5, 7))
    assert torch.equal(data.labels, every.labels[[0, 2, 5, 7]])
    assert DataSource("shapes:3", limit=4).open().image_ids == every.image_ids[:3]
    assert DataSource.from_description(DataSource("shapes:10", limit=4).describe()).limit == 4
    with pytest.raises(DataError, match="shapes:10: the limit must be 1 or more images, got 0"):
        DataSource("shapes:10", limit=0)
