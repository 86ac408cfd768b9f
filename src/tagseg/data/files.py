"""Where files lie: on disk or inside a zip, and how a name in a table is found there."""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Self

from tagseg.data.dataset import Facts, Pixels
from tagseg.data.images import SUFFIXES, decode, decode_with_mode, without_ending
from tagseg.errors import DataError


@dataclass(frozen=True)
class FileRef:
    """One file, by its path, or by its zip and the member's name in it."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}:{self.member}"

    def read(self) -> bytes:
        """The file's content."""
        try:
            if self.member is None:
                return self.path.read_bytes()
            return _open_zip(self.path, os.getpid()).read(self.member)
        except (OSError, KeyError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
            # RuntimeError: the zip is encrypted or packed in a way that Python does not know.
            raise DataError(f"{self}: cannot be read ({error}); replace the file or remove it") from error


@lru_cache(maxsize=64)
def _open_zip(path: Path, process: int) -> zipfile.ZipFile:  # noqa: ARG001
    # The process is part of the key: workers that inherited one handle would move each other's position in the file.
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist; name a zip that does") from error
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: is not a zip that can be read ({error}); download or pack it again") from error


@dataclass(frozen=True)
class ImageFiles:
    """Images stored in files."""

    files: tuple[FileRef, ...]
    max_side: int | None = None

    def read(self, index: int) -> Pixels:
        file = self.files[index]
        return decode(file.read(), str(file), max_side=self.max_side)

    def facts(self, index: int) -> Facts:
        file = self.files[index]
        data = file.read()
        pixels, mode = decode_with_mode(data, str(file))
        return Facts(pixels.shape[1], pixels.shape[0], mode, hashlib.blake2b(data).digest())

    def digest(self, index: int) -> bytes:
        return hashlib.blake2b(self.files[index].read()).digest()

    def select(self, indices: Sequence[int]) -> Self:
        return replace(self, files=tuple(self.files[i] for i in indices))


class Place:
    """A folder or a zip in which files are found by name.

    Args:
        path: the folder or zip.
        skip: names of folders whose files are never found, in lower case.
        endings: the only endings that are found.
    """

    def __init__(self, path: Path, *, skip: Iterable[str] = (), endings: Iterable[str] = SUFFIXES) -> None:
        if not path.exists():
            raise DataError(f"{path}: does not exist; name a folder or a zip that does")
        self.path = path
        self._skip = frozenset(skip)
        self._endings = frozenset(endings)

    def find(self, name: str) -> FileRef | None:
        """The file of this name, wherever it lies in the place; the folders and the ending may be left out."""
        wanted = PurePosixPath(name.replace("\\", "/"))
        if self.path.is_dir() and wanted.suffix and (self.path / wanted).is_file():
            return FileRef(self.path / wanted)
        return self.files.get(wanted) or self._one(self._by_name, wanted) or self._one(self._by_stem, wanted)

    def find_stem(self, name: str) -> FileRef | None:
        """The file of this name with whatever ending."""
        return self._one(self._by_stem, PurePosixPath(name))

    def _one(self, index: dict[str, list[FileRef]], wanted: PurePosixPath) -> FileRef | None:
        found = index.get(str(wanted), [])
        if len(found) > 1:
            raise DataError(
                f"{wanted} could be {found[0]} or {found[1]}; write more of its path, or name one folder with images="
            )
        return found[0] if found else None

    @cached_property
    def files(self) -> dict[PurePosixPath, FileRef]:
        if self.path.is_dir():
            paths = (path for path in sorted(self.path.rglob("*")) if path.is_file())
            files = {PurePosixPath(path.relative_to(self.path).as_posix()): FileRef(path) for path in paths}
        else:
            members = _open_zip(self.path, os.getpid()).namelist()
            files = {PurePosixPath(member): FileRef(self.path, member) for member in members}
        return {name: ref for name, ref in files.items() if self._wanted(name)}

    def _wanted(self, name: PurePosixPath) -> bool:
        hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
        skipped = any(part.lower() in self._skip for part in name.parts[:-1])
        return name.suffix.lower() in self._endings and not hidden and not skipped

    @cached_property
    def _by_name(self) -> dict[str, list[FileRef]]:
        return _index(self.files.items())

    @cached_property
    def _by_stem(self) -> dict[str, list[FileRef]]:
        return _index((without_ending(name), ref) for name, ref in self.files.items())


def _index(files: Iterable[tuple[PurePosixPath, FileRef]]) -> dict[str, list[FileRef]]:
    """Files by every ending of their path: a/b/c.png under "c.png", "b/c.png" and "a/b/c.png"."""
    index: dict[str, list[FileRef]] = {}
    for name, ref in files:
        for start in range(len(name.parts)):
            index.setdefault("/".join(name.parts[start:]), []).append(ref)
    return index
