"""Files on disk and inside zips, and how a name in a table is looked up among them."""

import lzma
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Self

from tagseg.data.images import (
    IMAGE_SUFFIXES,
    ImageInfo,
    Pixels,
    decode,
    decode_with_mode,
    image_info,
    strip_image_suffix,
)
from tagseg.errors import DataError


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
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
    """A file on disk, or a member of a zip.

    Attributes:
        path: Path of the file or of the zip.
        member: Name of the member, for a zip.
    """

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}:{self.member}"

    def read(self) -> bytes:
        """Read the file's content."""
        try:
            if self.member is None:
                return self.path.read_bytes()
            return _open_zip(self.path, os.getpid()).read(self.member)
        except (OSError, KeyError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            # zipfile raises RuntimeError for encrypted members and for unknown compression methods.
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
class ImageFiles:
    """Images stored in files: an `ImageReader`.

    Attributes:
        files: One file per image.
        max_side: Longest side of a decoded image, see `decode`.
    """

    files: tuple[FileRef, ...]
    max_side: int | None = None

    def read(self, index: int) -> Pixels:
        file = self.files[index]
        return decode(file.read(), str(file), max_side=self.max_side)

    def info(self, index: int) -> ImageInfo:
        file = self.files[index]
        data = file.read()
        pixels, mode = decode_with_mode(data, str(file))
        return image_info(pixels, mode, data)

    def select(self, indices: Sequence[int]) -> Self:
        return replace(self, files=tuple(self.files[i] for i in indices))


class FileIndex:
    """Index of the files in a folder or zip, to look them up by name.

    Hidden files are left out, as are the `__MACOSX` folders that macOS adds to zips.

    Args:
        path: The folder or zip.
        skip: Folders whose files are left out, in lower case.
        suffixes: Suffixes of the files to index.
    """

    def __init__(self, path: Path, *, skip: Iterable[str] = (), suffixes: Iterable[str] = IMAGE_SUFFIXES) -> None:
        if not path.exists():
            raise DataError(f"{path}: does not exist", "name a folder or a zip that does")
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
        """The indexed files by their path below the folder or in the zip."""
        if self.path.is_dir():
            paths = (path for path in sorted(self.path.rglob("*")) if path.is_file())
            files = {PurePosixPath(path.relative_to(self.path).as_posix()): FileRef(path) for path in paths}
        else:
            members = _open_zip(self.path, os.getpid()).namelist()
            files = {PurePosixPath(m): FileRef(self.path, m) for m in members if not m.endswith("/")}
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
