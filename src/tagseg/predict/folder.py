"""The folder that predictions are written to: what it holds, what may be written, and how a job continues.

predictions.json            the predictions, written at the end of a job
predictions-1-of-4.json     those of a shard
legend.png                  the colors of all classes that these list
predictions.json.journal    while a job runs: what it has written, so that nothing is lost if it is killed
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

from pydantic import BaseModel, ValidationError

from tagseg._files import make_folder, remove_part_files, write_atomically, write_text, writing
from tagseg._json import differences
from tagseg.errors import ConfigError
from tagseg.predict.index import ImageRecord, PredictionIndex, RunRecord
from tagseg.predict.prediction import OutputFiles, output_files
from tagseg.predict.render import draw_legend

INDEX_FILE = "predictions.json"
LEGEND_FILE = "legend.png"
_INDEX_NAME = re.compile(r"predictions(-\d+-of-\d+)?\.json")
_JOURNAL_SUFFIX = ".journal"
_MAX_LEAST_CERTAIN = 20
_UNREPEATABLE = (None, "-")  # paths of images in memory and of standard input, which may be others the next time


@dataclass(frozen=True)
class PlannedImage:
    """An image that is to be predicted: its name, its path, and the tags that its mask is limited to."""

    name: str
    path: str | None
    tags: tuple[str, ...] | None


class _JournalLine(BaseModel):
    """A line of a journal: the run, files that are begun, or an image whose files are written."""

    run: RunRecord | None = None
    writes: tuple[str, ...] = ()
    image: ImageRecord | None = None


@dataclass
class _Earlier:
    """What earlier calls wrote under one index file.

    Attributes:
        run: Model and settings.
        records: The images, by name.
        legend: legend.png, if it was written.
        unfinished: Files that were begun or were to be replaced when a job was killed.
    """

    run: RunRecord
    records: dict[str, ImageRecord] = field(default_factory=dict)
    legend: str | None = None
    unfinished: set[str] = field(default_factory=set)

    @property
    def files(self) -> set[str]:
        legend = [self.legend] if self.legend else []
        return self.unfinished.union(legend, *(record.files.values() for record in self.records.values()))


class PredictionFolder:
    """Decides which images are written to a folder, and keeps account of them.

    A file is replaced only if an index in the folder lists it, and only where the caller allows it.

    Args:
        out: The folder.
        run: Model and settings.
        files: Files to write for each image.
        shard: Number of this shard, from 1, and the number of shards.
        skip_existing: Keep images that were predicted with the same settings.
        overwrite: Replace files of earlier calls.
    """

    def __init__(
        self,
        out: Path,
        run: RunRecord,
        files: OutputFiles,
        *,
        shard: tuple[int, int] | None = None,
        skip_existing: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.path = out / index_file(shard)
        self._out, self._run, self._files = out, run, files
        self._skip_existing, self._overwrite = skip_existing, overwrite
        earlier = {name: part for name, part in _read_folder(out) if part.files}
        self._earlier = earlier.pop(self.path.name, _Earlier(run))
        for name, other in earlier.items():
            self._require_same_run(out / name, other.run)
        if not overwrite:
            self._require_same_run(self.path, self._earlier.run)
        same_run = [*earlier.values(), *([self._earlier] if self._earlier.run == run else [])]
        self._finished = {name: record for part in same_run for name, record in part.records.items()}
        self._known_files = self._earlier.files.union(*(other.files for other in earlier.values()))
        self._legend = self._earlier.legend
        if files.needs_legend_file and (out / LEGEND_FILE).exists():
            self._require_known(LEGEND_FILE)
        self._finished_files = {file for record in self._finished.values() for file in record.files.values()}
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
        if self._earlier.run != self._run:
            for record in self._earlier.records.values():
                if record.name not in names and (record.path or "").partition("#t=")[0] not in more:
                    raise ConfigError(
                        f"{self.path} lists {record.name}, which is not among these images, with other settings "
                        f"({self._difference(self._earlier.run)})",
                        "choose another folder with {out}",
                    )
        self._begin()
        return count

    def start_image(self, image: PlannedImage) -> bool:
        """Note the next image of the job, and return whether it is to be predicted.

        Raises:
            ConfigError: A file exists that must not be replaced.
        """
        is_to_predict = self._is_to_predict(image)
        with self._lock:
            self._order.append(image.name)
            if not is_to_predict:
                record = self._finished[image.name]
                self._records[image.name] = record.model_copy(update={"files": self._existing(record)})
        return is_to_predict

    def begin_image(self, files: Mapping[str, str]) -> None:
        """Note files, relative to the folder, before they are written."""
        self._note({"writes": list(files.values())})

    def add(self, record: ImageRecord) -> None:
        """Note an image whose files are written.

        Earlier files of the image of other kinds stay if the job continues, and are removed if it replaces predictions.
        """
        if self._skip_existing and (earlier := self._repeated(record)):
            record = record.model_copy(update={"files": self._existing(earlier) | record.files})
        for file in set(output_files(record.name).values()) & self._known_files - set(record.files.values()):
            with writing(self._out / file):
                (self._out / file).unlink(missing_ok=True)
        self._note({"image": record.model_dump(mode="json")})
        with self._lock:
            self._records[record.name] = record

    def finish(self, *, skipped: Sequence[str] = (), left_out: Mapping[str, list[str]] | None = None) -> Path:
        """Write the legend and the index of the whole job, and remove the journal."""
        self._write_legend()
        self._write_index(complete=True, skipped=skipped, left_out=left_out or {})
        self._close_journal()
        return self.path

    def interrupt(self, *, skipped: Sequence[str] = (), left_out: Mapping[str, list[str]] | None = None) -> None:
        """Write the index of what was done before an error; the journal keeps files that were only begun."""
        if self.path.exists() or self._all_records():
            self._write_legend()
            self._write_index(complete=False, skipped=skipped, left_out=left_out or {})
        listed = {file for record in self._all_records() for file in record.files.values()}
        begun = self._begun_files() - listed - {self._legend}
        self._close_journal()
        if any((self._out / file).exists() for file in begun):
            self._open_journal(sorted(begun))
            self._close_file()

    def _is_to_predict(self, image: PlannedImage) -> bool:
        record, repeated = self._finished.get(image.name), self._repeated(image)
        files = self._files.names(image.name)
        if self._skip_existing and repeated and files.keys() <= self._existing(repeated).keys():
            return False
        for file in files.values():
            if not (self._out / file).exists():
                continue
            self._require_known(file)
            is_left_over = self._skip_existing and (repeated or file not in self._finished_files)
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

    def _repeated(self, image: PlannedImage | ImageRecord) -> ImageRecord | None:
        """Record of an earlier call, if it is of the same prediction as an image's."""
        record = self._finished.get(image.name)
        is_same = record is not None and (image.path, image.tags) == (record.path, record.tags)
        return record if is_same and image.path not in _UNREPEATABLE else None

    def _existing(self, record: ImageRecord) -> dict[str, str]:
        """Files of an image that still exist, by kind."""
        return {kind: file for kind, file in record.files.items() if (self._out / file).exists()}

    def _require_known(self, file: str) -> None:
        if file not in self._known_files:
            raise ConfigError(
                f"{self._out / file}: exists, and no predictions.json beside it lists it, so it is not overwritten",
                "choose another folder with {out}",
            )

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
        remove_part_files(self._out, {index, index + _JOURNAL_SUFFIX, *self._earlier.unfinished})
        # At every moment the index and the journal together list all files of earlier calls.
        if self._earlier.run == self._run:
            if self._earlier.records:
                self._write_index(complete=False, skipped=(), left_out={})
            self._open_journal(sorted(self._earlier.unfinished))
        else:
            self._open_journal(sorted(self._earlier.files))
            self._write_index(complete=False, skipped=(), left_out={})

    def _open_journal(self, files: Sequence[str]) -> None:
        """Begin the journal with the run and with files that may be replaced later."""
        journal = _journal(self.path)
        header = {"run": self._run.model_dump(mode="json"), "writes": list(files)}
        write_text(journal, json.dumps(header) + "\n")
        with writing(journal):
            self._journal = journal.open("a", encoding="utf-8")

    def _note(self, line: dict[str, Any]) -> None:
        with self._lock, writing(self.path):
            assert self._journal is not None
            self._journal.write(json.dumps(line) + "\n")
            self._journal.flush()

    def _begun_files(self) -> set[str]:
        lines = _read_lines(_journal(self.path))
        return {file for line in lines for file in line.writes}

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
        earlier = self._earlier.records if self._earlier.run == self._run else {}
        with self._lock:
            done = [self._records[name] for name in dict.fromkeys(self._order) if name in self._records]
            return [*done, *(record for name, record in earlier.items() if name not in self._records)]

    def _write_legend(self) -> None:
        """Draw the classes of all indexes in the folder, if this job needs a legend or an earlier one wrote it."""
        parts = [part for _, part in _read_folder(self._out)]  # other shards may have written since this job began
        images = [record for part in parts for record in part.records.values()]
        class_names = {entry.value: entry.name for image in images for entry in image.classes}
        is_ours, path = any(LEGEND_FILE in part.files for part in parts), self._out / LEGEND_FILE
        if images and (is_ours or (self._files.needs_legend_file and not path.exists())):
            self._note({"writes": [LEGEND_FILE]})
            write_atomically(path, lambda part: draw_legend(sorted(class_names.items())).save(part, "PNG"))
            self._legend = LEGEND_FILE

    def _write_index(self, *, complete: bool, skipped: Sequence[str], left_out: Mapping[str, list[str]]) -> None:
        images = self._all_records()
        least_certain = sorted(images, key=lambda image: -image.uncertainty)[:_MAX_LEAST_CERTAIN]
        index = PredictionIndex(
            **{name: getattr(self._run, name) for name in RunRecord.model_fields},
            complete=complete,
            images=tuple(images),
            least_certain=tuple(image.name for image in least_certain),
            legend=self._legend,
            skipped=tuple(skipped),
            left_out={reason: tuple(paths) for reason, paths in left_out.items()},
        )
        text = index.model_dump_json(indent=2) + "\n"
        write_text(self.path, text)


def index_file(shard: tuple[int, int] | None) -> str:
    """Name of the index, or of that of a shard."""
    return INDEX_FILE if shard is None else f"predictions-{shard[0]}-of-{shard[1]}.json"


def predictions_among(paths: Iterable[Path]) -> set[Path]:
    """Those of the paths that are predictions: an index in their folder or in one above it lists them."""
    paths = set(paths)
    folders = {folder for parent in {path.parent for path in paths} for folder in (parent, *parent.parents)}
    return paths & {folder / file for folder in folders for file in _listed_files(folder)}


def _listed_files(folder: Path) -> set[str]:
    try:
        return {file for _, earlier in _read_folder(folder) for file in earlier.files}
    except (ConfigError, OSError):  # an index of another tool, or a folder that may not be listed
        return set()


def read_indexes(out: Path) -> list[PredictionIndex]:
    """Read predictions.json, or the indexes of all shards, of a folder; an empty list if it has none."""
    paths = sorted(path for path in out.iterdir() if _INDEX_NAME.fullmatch(path.name)) if out.is_dir() else []
    return [_read_index_file(path) for path in paths]


def _journal(index: Path) -> Path:
    return index.with_name(index.name + _JOURNAL_SUFFIX)


def _read_folder(out: Path) -> Iterator[tuple[str, _Earlier]]:
    """What a folder holds: the name of each index file, with or without a journal, and what it lists."""
    paths = out.iterdir() if out.is_dir() else ()
    names = {path.name.removesuffix(_JOURNAL_SUFFIX) for path in paths}
    for name in sorted(name for name in names if _INDEX_NAME.fullmatch(name)):
        earlier = _read_index(out / name)
        for line in _read_lines(_journal(out / name)):
            if line.run is not None and earlier is None:
                earlier = _Earlier(line.run)
            if earlier is not None and line.image is not None:
                earlier.records[line.image.name] = line.image
            if earlier is not None:
                earlier.unfinished.update(line.writes)
        if earlier is not None:
            yield name, earlier


def _read_index(path: Path) -> _Earlier | None:
    if not path.is_file():
        return None
    index = _read_index_file(path)
    return _Earlier(index.run, {record.name: record for record in index.images}, index.legend)


def _read_index_file(path: Path) -> PredictionIndex:
    try:
        return PredictionIndex.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise _unreadable(path) from None


def _read_lines(journal: Path) -> Iterator[_JournalLine]:
    """Lines of a journal, without one that a crash cut."""
    for text in journal.read_text(encoding="utf-8", errors="replace").split("\n") if journal.is_file() else ():
        try:
            yield _JournalLine.model_validate_json(text)
        except ValidationError as error:
            if any(problem["type"] != "json_invalid" for problem in error.errors()):
                raise _unreadable(journal) from None


def _unreadable(path: Path) -> ConfigError:
    return ConfigError(
        f"{path}: was not written by this version of tagseg, or is damaged",
        "choose another folder with {out}, or delete that file",
    )
