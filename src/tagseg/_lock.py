"""One process at a time in a folder, and what a killed process left there.

FOLDER/.lock           locked by the operating system, which frees it however its process ends; the empty file stays
FOLDER/.lock.holder    the process that holds the lock, for the message to others
"""

import json
import os
import re
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tagseg.errors import ConfigError, make_folder, writing

LOCK_FILE = ".lock"
_HOLDER_SUFFIX = ".holder"
_PART = re.compile(r"(.+)\.[0-9a-f]{8}\.part")
# The data workers of a killed process keep its lock until they see, in at most five seconds, that it has gone.
_SECONDS_FOR_WORKERS = 15.0


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
