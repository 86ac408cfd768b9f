"""Files that are either complete or absent, and one process at a time in a folder; torch is not imported.

FOLDER/.lock           locked by the operating system, which frees it however its process ends; the empty file stays
FOLDER/.lock.holder    the process that holds the lock, for the message to others
"""

import json
import os
import re
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from tagseg.errors import ConfigError

LOCK_FILE = ".lock"
_HOLDER_SUFFIX = ".holder"
_PART = re.compile(r"(.+)\.[0-9a-f]{8}\.part")
# The data workers of a killed process keep its lock until they see, in at most five seconds, that it has gone.
_SECONDS_FOR_WORKERS = 15.0


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an error of the file system, such as a full disk or a missing permission, into one that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        advice = "choose another place with {out}"
        if error.errno in (ENOSPC, EDQUOT):
            advice = f"free some space, or {advice}"
        raise ConfigError(f"{path}: cannot be written ({reason})", advice) from error


def make_folder(path: str | Path) -> None:
    """Make a folder for results before the work on them starts, so that a wrong path costs nothing."""
    if Path(path).is_file():
        raise ConfigError(f"{path}: is a file", "name a folder with {out}")
    with writing(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that a crash leaves either the old or the new one.

    Args:
        path: File to write or replace.
        write: Called with the path of a temporary file in the same folder.

    Raises:
        ConfigError: The file cannot be written, for example because the disk is full.
    """
    part = path.with_name(f"{path.name}.{uuid4().hex[:8]}.part")
    with writing(path):
        try:
            part.touch(exist_ok=False)
            mode = part.stat().st_mode
            write(part)
            part.chmod(mode)  # safetensors makes files that only their owner can read
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(path)
            _sync_folder(path.parent)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        finally:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, as `write_atomically` does."""
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


@contextmanager
def hold_folder(folder: Path, *, file: str = "") -> Iterator[None]:
    """Hold the lock of a folder, which is made if it does not exist.

    Args:
        folder: Folder that only one process may write to.
        file: Hold the lock of this file in the folder; others may write the folder's other files.

    Raises:
        ConfigError: Another process holds the lock.
    """
    is_new = not folder.exists()
    make_folder(folder)
    lock = FileLock(folder / (f"{LOCK_FILE}-{file}" if file else LOCK_FILE))
    holder_file = Path(lock.lock_file + _HOLDER_SUFFIX)
    with writing(folder):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            holder = _read_holder(holder_file)
            try:
                lock.acquire(timeout=0 if _may_live(holder) else _SECONDS_FOR_WORKERS)
            except Timeout:
                raise ConfigError(
                    f"{folder / file} is in use by process {holder.get('pid', '?')} on {holder.get('host', '?')}",
                    "wait until it ends, or choose another folder with {out}",
                ) from None
        holder_file.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}), encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            holder_file.unlink()
        if is_new and has_no_files(folder):  # nothing came of it
            with suppress(OSError):
                Path(lock.lock_file).unlink()
                folder.rmdir()
        lock.release()


def has_no_files(folder: Path) -> bool:
    """Whether a folder is empty, apart from its lock and the temporary files of `write_atomically`."""
    return all(path.name.startswith(LOCK_FILE) or _PART.fullmatch(path.name) for path in folder.iterdir())


def remove_part_files(folder: Path, files: Collection[str] | None = None) -> None:
    """Remove temporary files of `write_atomically` that killed processes left.

    Args:
        folder: Folder to search, with its subfolders; nobody else may be writing these files.
        files: Files that the temporary ones were to become, relative to the folder; all by default.
    """
    for part in folder.rglob("*.part"):
        match = _PART.fullmatch(part.relative_to(folder).as_posix())
        if match and (files is None or match[1] in files):
            with writing(part):
                part.unlink(missing_ok=True)


def remove_parts_of(path: Path) -> None:
    """Remove temporary files that killed processes left beside a file; nobody else may be writing it."""
    for part in path.parent.glob("*.part"):
        match = _PART.fullmatch(part.name)
        if match and match[1] == path.name:
            with writing(part):
                part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let a new name in a folder outlive a power failure; Windows does so by itself."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_holder(file: Path) -> dict[str, Any]:
    """Process that holds a lock; empty if it has not written its name yet."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _may_live(holder: dict[str, Any]) -> bool:
    """Whether a process may still run; False only if it is known to be gone."""
    if holder.get("host") != socket.gethostname() or os.name != "posix":
        return True
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, KeyError, ValueError):
        pass
    return True
