"""The folder that predictions are written to: what it holds, what may be written, and how a job continues.

predictions.json            the predictions, written at the end of a job
predictions-1-of-4.json     those of a shard
predictions.json.journal    while a job runs: what it has written, so that nothing is lost if it is killed
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

from pydantic import ValidationError

from tagseg._lock import remove_part_files
from tagseg.errors import ConfigError, make_folder, writing
from tagseg.models.serialization import write_atomically
from tagseg.predict.index import ImageRecord, PredictionIndex, RunRecord
from tagseg.training.run_folder import differences

INDEX_FILE = "predictions.json"
_INDEX_NAME = re.compile(r"predictions(-\d+-of-\d+)?\.json")
_JOURNAL_SUFFIX = ".journal"
_UNREPEATABLE = (None, "-")  # paths of images in memory and of standard input, which may be others the next time


@dataclass(frozen=True)
class PlannedImage:
    """An image that is to be predicted: its name, its path, and the tags that its mask is limited to."""

    name: str
    path: str | None
    tags: tuple[str, ...] | None


@dataclass
class _Earlier:
    """What earlier calls wrote under one index file.

    Attributes:
        run: Model and settings.
        records: The images, by name.
        unfinished: Files that were begun or were to be replaced when a job was killed.
    """

    run: RunRecord
    records: dict[str, ImageRecord] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)

    @property
    def files(self) -> set[str]:
        return self.unfinished.union(*(record.files.values() for record in self.records.values()))


class PredictionFolder:
    """Decides which images are written to a folder, and keeps account of them.

    A file is replaced only if an index in the folder lists it, and only where the caller allows it.

    Args:
        out: The folder.
        run: Model and settings.
        shard: Number of this shard, from 1, and the number of shards.
        skip_existing: Keep images that were predicted with the same settings.
        overwrite: Replace files of earlier calls.
    """

    def __init__(
        self,
        out: Path,
        run: RunRecord,
        *,
        shard: tuple[int, int] | None = None,
        skip_existing: bool = False,
        overwrite: bool = False,
    ) -> None:
        if out.exists() and not out.is_dir():
            raise ConfigError(f"{out}: is a file", "name a folder for the predictions with {out}")
        self.path = out / index_file(shard)
        self._out, self._run, self._skip_existing, self._overwrite = out, run, skip_existing, overwrite
        earlier = {name: part for name, part in _read_folder(out) if part.files}
        self._own = earlier.pop(self.path.name, _Earlier(run))
        for name, other in earlier.items():
            self._require_same_run(out / name, other.run)
        if not overwrite:
            self._require_same_run(self.path, self._own.run)
        same_run = [*earlier.values(), *([self._own] if self._own.run == run else [])]
        self._finished = {name: record for part in same_run for name, record in part.records.items()}
        self._owned = self._own.files.union(*(other.files for other in earlier.values()))
        self._own_files = {file for record in self._finished.values() for file in record.files.values()}
        self._records: dict[str, ImageRecord] = {}  # of this job, kept and new
        self._order: list[str] = []
        self._journal: TextIO | None = None
        self._lock = Lock()  # images are written in threads

    def plan(self, images: Iterable[PlannedImage], *, more: Sequence[str] = ()) -> int:
        """Check all images before any work, and begin the job.

        Args:
            images: Images of the job.
            more: Paths of videos, whose frames are checked when they come.

        Returns:
            Number of images that are to be predicted.

        Raises:
            ConfigError: A file exists that must not be replaced.
        """
        names, count = set(), 0
        for image in images:
            names.add(image.name)
            count += self._is_to_predict(image)
        if self._own.run != self._run:
            for record in self._own.records.values():
                if record.name not in names and (record.path or "").partition("#t=")[0] not in more:
                    raise ConfigError(
                        f"{self.path} lists {record.name}, which is not among these images, with other settings "
                        f"({self._difference(self._own.run)})",
                        "choose another folder with {out}",
                    )
        self._begin()
        return count

    def needs(self, image: PlannedImage) -> bool:
        """Note the next image of the job; whether it is to be predicted.

        Raises:
            ConfigError: A file exists that must not be replaced.
        """
        is_to_predict = self._is_to_predict(image)
        with self._lock:
            self._order.append(image.name)
            if not is_to_predict:
                self._records[image.name] = self._finished[image.name]
        return is_to_predict

    def begin_image(self, files: Mapping[str, str]) -> None:
        """Note files, relative to the folder, before they are written."""
        self._note({"writes": list(files.values())})

    def add(self, record: ImageRecord) -> None:
        """Note an image whose files are written."""
        self._note({"image": record.model_dump(mode="json")})
        with self._lock:
            self._records[record.name] = record

    @property
    def num_images(self) -> int:
        """Number of images of this job so far, those that were kept included."""
        return len(self._records)

    def finish(self, *, skipped: Sequence[str] = (), left_out: Mapping[str, list[str]] | None = None) -> Path:
        """Write the index of the whole job and remove the journal."""
        self._write_index(complete=True, skipped=skipped, left_out=left_out or {})
        self._close_journal()
        return self.path

    def interrupt(self, *, skipped: Sequence[str] = (), left_out: Mapping[str, list[str]] | None = None) -> None:
        """Write the index of what was done before an error; the journal keeps files that were only begun."""
        if self.path.exists() or self._all_records():
            self._write_index(complete=False, skipped=skipped, left_out=left_out or {})
        begun = self._begun_files() - {file for record in self._all_records() for file in record.files.values()}
        self._close_journal()
        if any((self._out / file).exists() for file in begun):
            self._open_journal(sorted(begun))
            self._close_file()

    def _is_to_predict(self, image: PlannedImage) -> bool:
        record = self._finished.get(image.name)
        is_same = record is not None and (image.path, image.tags) == (record.path, record.tags)
        is_same = is_same and image.path not in _UNREPEATABLE
        files = record.files.values() if record else output_files(image.name).values()
        existing = [file for file in files if (self._out / file).exists()]
        if self._skip_existing and is_same and len(existing) == len(files):
            return False
        for file in existing:
            if file not in self._owned:
                raise ConfigError(
                    f"{self._out / file}: exists, and no predictions.json beside it lists it, so it is not overwritten",
                    "choose another folder with {out}",
                )
            is_left_over = self._skip_existing and (is_same or file not in self._own_files)
            if not self._overwrite and not is_left_over:
                of_other = f", of {record.path}" if record and image.path != record.path else ""
                of_other = of_other or (", with other tags" if record and image.tags != record.tags else "")
                raise ConfigError(
                    f"{self._out / file}: exists{of_other}",
                    "replace it by {overwrite}, or choose another folder with {out}"
                    if self._skip_existing
                    else "keep it by {skip_existing}, replace it by {overwrite}, or choose another folder with {out}",
                )
        return True

    def _require_same_run(self, path: Path, run: RunRecord) -> None:
        if run != self._run:
            raise ConfigError(
                f"{path} lists predictions of other settings ({self._difference(run)})",
                "replace them by {overwrite}, or choose another folder with {out}"
                if path == self.path
                else "choose another folder with {out}",
            )

    def _difference(self, run: RunRecord) -> str:
        return "; ".join(list(differences(run.model_dump(mode="json"), self._run.model_dump(mode="json")))[:3])

    def _begin(self) -> None:
        make_folder(self._out)
        index = self.path.name
        remove_part_files(self._out, {index, index + _JOURNAL_SUFFIX, *self._own.unfinished})
        # At every moment the index and the journal together list all files of earlier calls.
        if self._own.run == self._run:
            if self._own.records:
                self._write_index(complete=False, skipped=(), left_out={})
            self._open_journal(sorted(self._own.unfinished))
        else:
            self._open_journal(sorted(self._own.files))
            self._write_index(complete=False, skipped=(), left_out={})

    def _open_journal(self, files: Sequence[str]) -> None:
        """Begin the journal with the run and with files that may be replaced later."""
        journal = _journal(self.path)
        header = {"run": self._run.model_dump(mode="json"), "writes": list(files)}
        write_atomically(journal, lambda part: part.write_text(json.dumps(header) + "\n", encoding="utf-8"))
        with writing(journal):
            self._journal = journal.open("a", encoding="utf-8")

    def _note(self, line: dict[str, Any]) -> None:
        with self._lock, writing(self.path):
            assert self._journal is not None
            self._journal.write(json.dumps(line) + "\n")
            self._journal.flush()

    def _begun_files(self) -> set[str]:
        lines = _read_lines(_journal(self.path))
        return {file for line in lines for file in line.get("writes", ())}

    def _close_file(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _close_journal(self) -> None:
        self._close_file()
        with writing(self.path):
            _journal(self.path).unlink(missing_ok=True)

    def _all_records(self) -> list[ImageRecord]:
        """Images of this job in its order, then those of earlier calls under this index that the job does not have."""
        earlier = self._own.records if self._own.run == self._run else {}
        with self._lock:
            done = [self._records[name] for name in dict.fromkeys(self._order) if name in self._records]
            return [*done, *(record for name, record in earlier.items() if name not in self._records)]

    def _write_index(self, *, complete: bool, skipped: Sequence[str], left_out: Mapping[str, list[str]]) -> None:
        index = PredictionIndex(
            **{name: getattr(self._run, name) for name in RunRecord.model_fields},
            complete=complete,
            images=tuple(self._all_records()),
            skipped=tuple(skipped),
            left_out={reason: tuple(paths) for reason, paths in left_out.items()},
        )
        text = index.model_dump_json(indent=2) + "\n"
        write_atomically(self.path, lambda part: part.write_text(text, encoding="utf-8"))


def index_file(shard: tuple[int, int] | None) -> str:
    """Name of the index, or of that of a shard."""
    return INDEX_FILE if shard is None else f"predictions-{shard[0]}-of-{shard[1]}.json"


def output_files(name: str) -> dict[str, str]:
    """Files of an image by kind, relative to the folder."""
    return {"mask": f"{name}_mask.png", "overlay": f"{name}_overlay.jpg"}


def _journal(index: Path) -> Path:
    return index.with_name(index.name + _JOURNAL_SUFFIX)


def _read_folder(out: Path) -> Iterator[tuple[str, _Earlier]]:
    """What a folder holds: the name of each index file, with or without a journal, and what it lists."""
    paths = out.iterdir() if out.is_dir() else ()
    names = {path.name.removesuffix(_JOURNAL_SUFFIX) for path in paths}
    for name in sorted(name for name in names if _INDEX_NAME.fullmatch(name)):
        earlier = _read_index(out / name)
        for line in _read_lines(_journal(out / name)):
            try:
                if "run" in line and earlier is None:
                    earlier = _Earlier(RunRecord.model_validate(line["run"]))
                if earlier is not None and "image" in line:
                    record = ImageRecord.model_validate(line["image"])
                    earlier.records[record.name] = record
            except ValidationError:
                raise _unreadable(_journal(out / name)) from None
            if earlier is not None:
                earlier.unfinished.update(line.get("writes", ()))
        if earlier is not None:
            yield name, earlier


def _read_index(path: Path) -> _Earlier | None:
    if not path.is_file():
        return None
    try:
        index = PredictionIndex.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise _unreadable(path) from None
    return _Earlier(index.run, {record.name: record for record in index.images})


def _read_lines(journal: Path) -> Iterator[dict[str, Any]]:
    """Lines of a journal, without one that a crash cut."""
    for text in journal.read_text(encoding="utf-8", errors="replace").splitlines() if journal.is_file() else ():
        try:
            yield json.loads(text)
        except ValueError:
            continue


def _unreadable(path: Path) -> ConfigError:
    return ConfigError(
        f"{path}: was not written by this version of tagseg, or is damaged",
        "choose another folder with {out}, or delete that file",
    )
