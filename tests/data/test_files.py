"""Finding and reading files on disk and in zips."""

import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from tagseg.data import DataError, DataSource
from tagseg.data.files import FileIndex, FileRef, find_shards, tar_members
from tests.data.small_datasets import GREEN, RED, image_bytes, write_image, write_text, write_zip


def test_file_is_found_by_any_suffix_of_its_path(tmp_path: Path) -> None:
    write_image(tmp_path / "x" / "y" / "1.png")
    index = FileIndex(tmp_path)
    for name in ("1", "1.png", "y/1", "x/y/1.png", "x\\y\\1.png"):
        assert index.find(name) == FileRef(tmp_path / "x" / "y" / "1.png")
    assert index.find("z/1.png") is None
    assert index.find("a" * 5000 + ".png") is None  # longer than file systems allow


def test_hidden_files_skipped_folders_and_zip_folders_are_not_indexed(tmp_path: Path) -> None:
    members = {"a.png": b"", "__MACOSX/b.png": b"", ".c.png": b"", "Masks/d.png": b"", "e.txt": b"", "f.png/": b""}
    archive = write_zip(tmp_path / "t.zip", members)
    assert [str(name) for name in FileIndex(archive, skip={"masks"}).files] == ["a.png"]


def test_ambiguous_name_is_an_error(tmp_path: Path) -> None:
    write_image(tmp_path / "x" / "1.png")
    write_image(tmp_path / "y" / "1.png")
    with pytest.raises(DataError, match=r"1\.png could be .*; write more of its path, or name one folder with images="):
        FileIndex(tmp_path).find("1.png")


def test_damaged_member_does_not_affect_others(tmp_path: Path) -> None:
    write_zip(tmp_path / "t.zip", {"0.png": image_bytes(RED), "1.png": image_bytes(GREEN)})
    table = write_text(tmp_path / "t.csv", "0.png,cat\n1.png,dog\n")
    expected = DataSource(table).open()[1][0]
    content = bytearray((tmp_path / "t.zip").read_bytes())
    content[60] ^= 255  # inside the first image
    (tmp_path / "u.zip").write_bytes(content)
    damaged = DataSource(table, images=tmp_path / "u.zip").open()
    with pytest.raises(DataError, match=r"u\.zip:0\.png: cannot be read \(Bad CRC.*replace the file or remove it"):
        damaged[0]
    assert torch.equal(damaged[1][0], expected)


def test_damaged_lzma_member_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.png", image_bytes())
    content = bytearray(path.read_bytes())
    content[45:60] = bytes([255] * 15)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.zip:a\.png: cannot be read"):
        FileRef(path, "a.png").read()


def test_zip_member_that_claims_or_has_too_much_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(2**20))
    assert len(FileRef(path, "a.png").read()) == 2**20
    claim = (2**20).to_bytes(4, "little")
    content = path.read_bytes()
    assert content.count(claim) == 2  # in the member's header and in the directory
    for claimed, message in ((2**31, "has more than 1,024 MiB"), (100, r"cannot be read \(Bad CRC")):
        other = tmp_path / f"{claimed}.zip"
        other.write_bytes(content.replace(claim, claimed.to_bytes(4, "little")))
        with pytest.raises(DataError, match=rf"a\.png: {message}"):
            FileRef(other, "a.png").read()


def test_bzip2_and_unknown_methods_are_data_errors(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.png", image_bytes())
    with pytest.raises(DataError, match=r"a\.png: is packed by BZIP2, which is not read; pack the zip again"):
        FileRef(tmp_path / "b.zip", "a.png").read()
    content = bytearray(write_zip(tmp_path / "u.zip", {"a.png": image_bytes()}).read_bytes())
    content[content.index(b"PK\1\2") + 10] = 99  # the method
    (tmp_path / "u.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.png: cannot be read \(That compression method is not supported"):
        FileRef(tmp_path / "u.zip", "a.png").read()


def test_links_of_a_zip_are_no_files(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("a.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("b.png", image_bytes())
    assert [str(name) for name in FileIndex(tmp_path / "t.zip").files] == ["b.png"]


def test_members_that_lead_out_of_an_archive_stay_in_it(tmp_path: Path) -> None:
    write_zip(tmp_path / "t.zip", {"../a.png": image_bytes(RED), "/b.png": image_bytes(GREEN)})
    for file in FileIndex(tmp_path / "t.zip").files.values():
        assert file.read().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.rglob("*.png")) == []


def test_links_in_a_folder_are_followed(tmp_path: Path) -> None:
    write_image(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "b.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "images" / "broken.png").symlink_to(tmp_path / "nowhere.png")
    assert [str(name) for name in FileIndex(tmp_path / "images").files] == ["b.png"]


def test_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.png: cannot be read \(.*; replace the file or remove it"):
        FileRef(tmp_path / "a.png").read()


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    for name, color in (("a.png", RED), ("b.png", GREEN)):
        write_image(tmp_path / "images" / name, color)
    with tarfile.open(tmp_path / "t.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(tmp_path / "images", "images")
    return tmp_path / "t.tar"


def test_images_of_a_table_are_found_in_a_tar(tar: Path) -> None:
    table = write_text(tar.parent / "t.csv", "a.png,cat\nb.png,dog\n")
    dataset = DataSource(table, images=tar).open()
    assert [dataset[index][0][:, 0, 0].tolist() for index in (1, 0)] == [list(GREEN), list(RED)]


@pytest.mark.parametrize("length", [0, 300, 700, 1500, 2000])
def test_cut_off_tar_is_a_data_error(tar: Path, length: int) -> None:
    tar.write_bytes(tar.read_bytes()[:length])
    with pytest.raises(DataError, match=r"t\.tar: is (not a tar that can be read|damaged at byte).*again$"):
        list(tar_members(tar))


def test_damaged_header_is_not_the_end_of_a_tar(tar: Path) -> None:
    content = bytearray(tar.read_bytes())
    content[content.index(b"images/b.png")] ^= 255
    tar.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.tar: is damaged at byte [\d,]+; download or pack it again"):
        list(tar_members(tar))


def test_compressed_tar_is_a_data_error(tar: Path) -> None:
    with tarfile.open(tar, "w:gz") as archive:
        archive.add(tar.parent / "images", "images")
    with pytest.raises(DataError, match=r"unpack it if it is compressed \(\.tar\.gz\)"):
        list(tar_members(tar))


def test_tar_that_shrank_since_it_was_opened_is_a_data_error(tar: Path) -> None:
    members = list(tar_members(tar))
    tar.write_bytes(tar.read_bytes()[: members[-1].offset + 3])
    with pytest.raises(DataError, match=r"t\.tar:images/.\.png: the tar is cut off here"):
        members[-1].read()


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00002.parquet", "train"),
        ("data/train-00000-of-00002-0a1b2c3d.parquet", "train"),
        ("train_000123.parquet", "train"),
        ("train/0000.parquet", "train"),
        ("train/data-00000-of-00001.parquet", "train"),
        ("train2017.parquet", "train2017"),
        ("train.parquet", "train"),
    ],
)
def test_name_of_a_shard_shows_its_split(tmp_path: Path, name: str, split: str) -> None:
    shard, other = write_text(tmp_path / name, ""), write_text(tmp_path / "other-0.parquet", "")
    write_text(tmp_path / "cache-0a1b.parquet", "")
    assert find_shards(tmp_path, [".parquet"], split) == [shard]
    assert find_shards(tmp_path, [".parquet"], "other") == [other]
    assert find_shards(shard, [".parquet"]) == [shard]
