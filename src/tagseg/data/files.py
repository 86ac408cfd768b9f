"""Files on disk and inside zips and tars, and how a name in a table is looked up among them."""

import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Self

from tagseg.data.images import (
    IMAGE_SUFFIXES,
    ImageInfo,
    Pixels,
    decode,
    image_info,
    strip_image_suffix,
)
from tagseg.data.limits import MAX_TEXT_BYTES, hold_file, read_file, read_stream, require_size
from tagseg.errors import DataError, unknown_name

TAR_SUFFIX = ".tar"
# zipfile raises RuntimeError for encrypted members and NotImplementedError for unknown compression methods.
_ZIP_ERRORS = (OSError, KeyError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
# What follows the split in the name of a shard: -00000-of-00002, -00000-of-00002-0a1b2c3d, or _000123.
_SHARD_NUMBER = re.compile(r"(?:^|[-_.])\d+(?:-of-\d+)?(?:-[0-9a-f]+)?$")


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark."""
    try:
        return read_file(path, MAX_TEXT_BYTES).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist", "name a file that does") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error})", "save it as UTF-8") from error


def expand_home(path: str | Path) -> Path:
    """Replace `~` by the home folder; unlike `Path.expanduser`, keep `~name` if there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def is_file(path: Path) -> bool:
    """Whether a path is a file; False for names that the file system does not allow."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class FileRef:
    """A file on disk, or a member of a zip; subclasses are read from other archives.

    Attributes:
        path: Path of the file or of the archive.
        member: Name of the member, for an archive.
    """

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}:{self.member}"

    def size(self) -> int:
        """Size of the content that `read` returns, in bytes, as the file system or the archive tells it."""
        try:
            if self.member is None:
                return self.path.stat().st_size
            return _open_zip(self.path, os.getpid()).getinfo(self.member).file_size
        except (OSError, KeyError) as error:
            raise DataError(f"{self}: cannot be read ({error})", "replace the file or remove it") from error

    def read(self) -> bytes:
        """Read the file's content.

        Raises:
            DataError: It cannot be read, or is larger than 1 GiB.
        """
        require_size(self, self.size())
        try:
            if self.member is None:
                return read_file(self.path)
            archive = _open_zip(self.path, os.getpid())
            # zipfile unpacks what BZIP2 packed without a limit: a few bytes of it can fill the memory.
            if archive.getinfo(self.member).compress_type == zipfile.ZIP_BZIP2:
                raise DataError(f"{self}: is packed by BZIP2, which is not read", "pack the zip again with Deflate")
            with archive.open(self.member) as file:
                return read_stream(file, self)
        except _ZIP_ERRORS as error:
            raise DataError(f"{self}: cannot be read ({error})", "replace the file or remove it") from error


@lru_cache(maxsize=64)
def _open_zip(path: Path, process_id: int) -> zipfile.ZipFile:  # noqa: ARG001
    # Worker processes must not share one handle, because they would move each other's file position.
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist", "name a zip that does") from error
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: is not a zip that can be read ({error})", "download or pack it again") from error


@dataclass(frozen=True)
class TarMember(FileRef):
    """A member of an uncompressed tar, read at its position.

    Attributes:
        offset: Position of the member's content in the tar, in bytes.
        length: Length of the content in bytes.
    """

    offset: int = 0
    length: int = 0

    def size(self) -> int:
        return self.length

    def read(self) -> bytes:
        require_size(self, self.length)
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.length)
        except OSError as error:
            raise DataError(f"{self}: cannot be read ({error})", "replace the file or remove it") from error
        if len(data) < self.length:
            raise DataError(f"{self}: the tar is cut off here", "download or pack it again")
        return data


def tar_members(path: Path) -> Iterator[TarMember]:
    """Files in a tar, in their order; only the headers are read."""
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if member.isreg():
                    yield TarMember(path, member.name, member.offset_data, member.size)
            # tarfile takes a damaged header for the end, which is a block of zeros.
            file.seek(tar.offset)
            is_complete = not any(file.read(tarfile.BLOCKSIZE))
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist", "name a tar that does") from error
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        raise DataError(
            f"{path}: is not a tar that can be read ({error})",
            "unpack it if it is compressed (.tar.gz), otherwise download or pack it again",
        ) from error
    if not is_complete:
        raise DataError(f"{path}: is damaged at byte {tar.offset:,}", "download or pack it again")


def is_archive(path: str | Path) -> bool:
    """Whether a file is a zip or a tar, whose members can be read."""
    return zipfile.is_zipfile(path) or (Path(path).suffix.lower() == TAR_SUFFIX and is_file(Path(path)))


def find_shards(path: Path, suffixes: Iterable[str], split: str | None = None) -> list[Path]:
    """Find the shards of a dataset: files named train-00000-of-00002.parquet, or folders train/, of each split.

    Args:
        path: A shard, or a folder of shards.
        suffixes: Suffixes of the shards.
        split: Split to read; needed if there are several.

    Returns:
        The files in order; empty if the folder has none.
    """
    if path.is_file():
        return [path]
    by_split: dict[str, list[Path]] = defaultdict(list)
    files = (file for depth in ("*", "*/*", "*/*/*") for file in path.glob(depth) if file.suffix.lower() in suffixes)
    for file in sorted(files):
        # The cache-*.arrow files beside a saved dataset are left from processing it.
        if file.is_file() and not file.name.startswith((".", "cache-")):
            name = _SHARD_NUMBER.sub("", file.stem)
            by_split[file.parent.name if name in ("", "data") else name].append(file)
    if split is None and len(by_split) > 1:
        raise DataError(f"{path}: holds the splits {', '.join(by_split)}", "name one of them with {split}")
    if split is not None and by_split and split not in by_split:
        raise DataError(f"{path}: {unknown_name('split', split, by_split)}")
    return by_split[split] if split in by_split else [file for files in by_split.values() for file in files]


def read_image(file: FileRef) -> Pixels:
    """Read and decode an image, as `decode` does."""
    with hold_file(file.size()):
        return decode(file.read(), str(file))


@dataclass(frozen=True)
class ImageFiles:
    """Images stored in files: an `ImageReader`.

    Attributes:
        files: One file per image.
    """

    files: tuple[FileRef, ...]

    def read(self, index: int) -> Pixels:
        return read_image(self.files[index])

    def info(self, index: int) -> ImageInfo:
        file = self.files[index]
        with hold_file(file.size()):
            return image_info(file.read(), str(file))

    def select(self, indices: Sequence[int]) -> Self:
        return replace(self, files=tuple(self.files[i] for i in indices))


class FileIndex:
    """Index of the files in a folder, zip or tar, to look them up by name.

    Hidden files are left out, as are the `__MACOSX` folders that macOS adds to zips.

    Args:
        path: The folder, zip or tar.
        skip: Folders whose files are left out, in lower case.
        suffixes: Suffixes of the files to index.
    """

    def __init__(self, path: Path, *, skip: Iterable[str] = (), suffixes: Iterable[str] = IMAGE_SUFFIXES) -> None:
        if not path.exists():
            raise DataError(f"{path}: does not exist", "name a folder, a zip or a tar that does")
        self.path = path
        self._skip = frozenset(skip)
        self._suffixes = frozenset(suffixes)

    def find(self, name: str) -> FileRef | None:
        """Find the file of this name in any subfolder; leading folders and the suffix may be left out."""
        relative = PurePosixPath(name.replace("\\", "/"))
        if self.path.is_dir() and relative.suffix and is_file(self.path / relative):
            return FileRef(self.path / relative)
        return self.files.get(relative) or self._only(self._by_name, relative) or self._only(self._by_stem, relative)

    def find_stem(self, stem: str) -> FileRef | None:
        """Find the file of this name with any suffix."""
        return self._only(self._by_stem, PurePosixPath(stem))

    @cached_property
    def files(self) -> dict[PurePosixPath, FileRef]:
        """The indexed files by their path below the folder or in the archive."""
        if self.path.is_dir():
            paths = (path for path in sorted(self.path.rglob("*")) if path.is_file())
            files = {PurePosixPath(path.relative_to(self.path).as_posix()): FileRef(path) for path in paths}
        elif self.path.suffix.lower() == TAR_SUFFIX:
            files = {PurePosixPath(str(file.member)): file for file in tar_members(self.path)}
        else:
            members = _open_zip(self.path, os.getpid()).infolist()
            names = [m.filename for m in members if not (m.is_dir() or stat.S_ISLNK(m.external_attr >> 16))]
            files = {PurePosixPath(name): FileRef(self.path, name) for name in names}
        return {name: file for name, file in files.items() if self._is_indexed(name)}

    def _is_indexed(self, name: PurePosixPath) -> bool:
        hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
        skipped = any(part.lower() in self._skip for part in name.parts[:-1])
        return name.suffix.lower() in self._suffixes and not hidden and not skipped

    def _only(self, index: dict[str, list[FileRef]], name: PurePosixPath) -> FileRef | None:
        files = index.get(str(name), [])
        if len(files) > 1:
            raise DataError(
                f"{name} could be {files[0]} or {files[1]}",
                "write more of its path, or name one folder with {images}",
            )
        return files[0] if files else None

    @cached_property
    def _by_name(self) -> dict[str, list[FileRef]]:
        return _by_path_ends(self.files.items())

    @cached_property
    def _by_stem(self) -> dict[str, list[FileRef]]:
        return _by_path_ends((strip_image_suffix(name), file) for name, file in self.files.items())


def _by_path_ends(files: Iterable[tuple[PurePosixPath, FileRef]]) -> dict[str, list[FileRef]]:
    """Group files by every end of their path: a/b/c.png is listed under "c.png", "b/c.png" and "a/b/c.png"."""
    groups: dict[str, list[FileRef]] = {}
    for name, file in files:
        for start in range(len(name.parts)):
            groups.setdefault("/".join(name.parts[start:]), []).append(file)
    return groups
