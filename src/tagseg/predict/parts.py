"""Predictions of very many images, in parts of bounded size: by one process, or by the workers of a Ray cluster.

job.json                             model, settings, the number of images and parts; at the end what was skipped
predictions-00000-of-01000.parquet   a row for each image of a part, with its mask or the names of its files
NAME_mask.png                        the files of each image, for the format png
legend.png                           the colors of all classes that were found, if there are overlays

The images alone decide how they are divided. A part's file is written last, so it stands for a finished part: a worker
that repeats a part leaves what the first one would have left, and a resumed job runs the parts without a file.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from tagseg._files import has_no_files, hold_folder, remove_part_files, write_atomically, write_text, writing
from tagseg._json import differences
from tagseg._progress import ProgressBar
from tagseg._ray import part_size, run_on_ray
from tagseg._version import __version__
from tagseg.errors import ConfigError, DataError, unknown_name
from tagseg.predict.folder import LEGEND_FILE
from tagseg.predict.index import ImageRecord, RunRecord
from tagseg.predict.pipeline import read_ahead
from tagseg.predict.prediction import FORMATS, Format, OutputFiles, Prediction
from tagseg.predict.predictor import PredictionStream
from tagseg.predict.render import draw_legend
from tagseg.predict.sources import FileSource
from tagseg.predict.tags import Tags

JOB_FILE = "job.json"
_COLUMNS = {"mask": "mask", "overlay": "overlay", "confidence": "confidence_image"}  # kind of file -> column
_METADATA_KEY = b"tagseg"
# A row group is held in memory by whoever writes or reads it.
_ROWS_OF_GROUP, _BYTES_OF_GROUP = 100, 2**26

_IDENTITY = {*RunRecord.model_fields, "format", "files", "images", "part_size", "digest"}  # of a job that is resumed


class JobRecord(RunRecord):
    """Content of job.json."""

    tagseg: str = Field(default=__version__, description="Version of tagseg that wrote the file.")
    format: Format = Field(description="Where masks are: in files, or in the rows of the parts.")
    files: tuple[str, ...] = Field(description="Kinds of files, or columns, for each image.")
    images: int = Field(description="Number of images of the job.")
    part_size: int = Field(description="Number of images of a part.")
    digest: str = Field(description="Hash of the names, paths and tags of all images.")
    complete: bool = Field(default=False, description="Whether all parts are written.")
    skipped: tuple[str, ...] = Field(default=(), description="Why each image that could not be read was skipped.")
    left_out: dict[str, tuple[str, ...]] = Field(
        default={}, description="Files that look like images but are not read, by what to do about them."
    )

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return -(-self.images // self.part_size)

    @property
    def run(self) -> RunRecord:
        """The part that all images have in common."""
        return RunRecord(**{name: getattr(self, name) for name in RunRecord.model_fields})

    def file(self, number: int) -> str:
        """Name of a part's file."""
        return f"predictions-{number:05d}-of-{self.num_parts:05d}.parquet"


@dataclass(frozen=True)
class Part:
    """A part of a job: its number from 0, and its images with their tags."""

    number: int
    images: tuple[tuple[FileSource, Tags | None], ...]

    def __str__(self) -> str:
        return f"the images {self.images[0][0].path} to {self.images[-1][0].path}"


class PartRecord(BaseModel):
    """What the file of a part says about it, in its metadata.

    Attributes:
        images: Number of images.
        skipped: Why each image that could not be read was skipped.
        found: Values in the masks, and their classes.
    """

    images: int
    skipped: tuple[str, ...]
    found: dict[int, str]

    @property
    def num_done(self) -> int:
        """Number of images that are written or skipped."""
        return self.images + len(self.skipped)


def write_parts(
    stream: PredictionStream,
    out: Path,
    *,
    format: Format = "parquet",
    files: OutputFiles,
    skip_existing: bool = False,
    ray: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Path:
    """Write the predictions of a stream in parts, each image once.

    Args:
        stream: Images in files and settings.
        out: Folder to write to; new, or that of the same job.
        format: `png`, or `parquet`.
        files: Files of each image, which are columns of Parquet files.
        skip_existing: Resume the job in the folder: keep its parts.
        ray: Ray cluster to run the parts on, as in `run_on_ray`; None for this process.
        workers: Number of workers of the cluster.
        progress: Show the progress on stderr.

    Returns:
        Path of job.json.
    """
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    _import_parquet()
    images, run = list(_files_of(stream)), stream.run
    job = JobRecord(
        **{name: getattr(run, name) for name in RunRecord.model_fields},
        format=format,
        files=tuple(files.names("")),
        images=len(images),
        part_size=part_size(len(images)),
        digest=_digest(images),
        left_out={reason: tuple(paths) for reason, paths in stream.left_out.items()},
    )
    with hold_folder(out):
        _prepare(out, job, skip_existing=skip_existing)
        files_of_parts = {number: out / job.file(number) for number in range(job.num_parts)}
        records = {number: _read(path) for number, path in files_of_parts.items() if path.is_file()}
        pending = [
            Part(number, tuple(images[number * job.part_size : (number + 1) * job.part_size]))
            for number in range(job.num_parts)
            if number not in records
        ]
        del images
        done = sum(record.num_done for record in records.values())
        with ProgressBar("Predicting, image", job.images, done=done, quiet=not progress) as bar:
            if not pending:
                bar.print("Nothing to do: all images were predicted before")
            results: Iterable[tuple[int, PartRecord]]
            write_part = partial(_write_part, stream.select([]), out, job, files)
            if ray is None or not pending:
                results = map(partial(write_part, on_image=lambda count: bar.update(done + count)), pending)
            else:
                bar.note(f"starting workers; progress comes in parts of {job.part_size:,} images")
                results = run_on_ray(
                    ray,
                    write_part,
                    pending,
                    folder=out,
                    resume="continue by the same command with {skip_existing}",
                    on_gpus=stream.requested_device != "cpu",
                    workers=workers,
                )
            for number, record in results:
                records[number] = record
                done += record.num_done
                bar.text = ""
                bar.update(done)
        return _finish(out, job, [records[number] for number in range(job.num_parts)], files)


def _files_of(stream: PredictionStream) -> Iterator[tuple[FileSource, Tags | None]]:
    if stream.videos:
        raise DataError(
            f"{stream.videos[0].path}: a video cannot be divided into parts",
            "predict videos without {ray} and {format}",
        )
    for source, tags in stream.images():
        if not isinstance(source, FileSource):
            raise DataError(
                f"{source.name}: an image in memory or of standard input cannot be divided into parts",
                "write it to a file, or predict it without {ray} and {format}",
            )
        yield source, tags


def _digest(images: Iterable[tuple[FileSource, Tags | None]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for source, tags in images:
        digest.update(f"{source.name}\0{source.path}\0{tags}\n".encode())
    return digest.hexdigest()


def _prepare(out: Path, job: JobRecord, *, skip_existing: bool) -> None:
    """Begin a job in an empty folder, or check that the folder has a part of it."""
    path = out / JOB_FILE
    if not path.is_file():
        if not has_no_files(out):
            raise ConfigError(f"{out} exists and has no {JOB_FILE}", "choose another folder with {out}")
        _write(path, job)
        return
    try:
        existing = JobRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise ConfigError(
            f"{path}: was not written by this version of tagseg, or is damaged", "choose another folder with {out}"
        ) from None
    if not skip_existing and any(out.glob("predictions-*.parquet")):  # without one the job has only been prepared
        raise ConfigError(
            f"{out}: has the predictions of an earlier call",
            "continue it by {skip_existing}, or choose another folder with {out}",
        )
    before, now = (record.model_dump(mode="json", include=_IDENTITY) for record in (existing, job))
    changes = list(differences(before, now))
    if changes:
        raise ConfigError(
            f"{out}: has predictions of other images or settings ({'; '.join(changes[:3])})",
            "choose another folder with {out}",
        )
    remove_part_files(out)


def _finish(out: Path, job: JobRecord, records: Sequence[PartRecord], files: OutputFiles) -> Path:
    """Write the legend and the complete job.json, and remove what lost workers left."""
    remove_part_files(out)
    class_names = {value: name for record in records for value, name in record.found.items()}
    if job.format == "png" and files.needs_legend_file:
        write_atomically(out / LEGEND_FILE, lambda part: draw_legend(sorted(class_names.items())).save(part, "PNG"))
    skipped = tuple(line for record in records for line in record.skipped)
    _write(out / JOB_FILE, job.model_copy(update={"complete": True, "skipped": skipped}))
    return out / JOB_FILE


def _write(path: Path, job: JobRecord) -> None:
    text = job.model_dump_json(indent=2) + "\n"
    write_text(path, text)


def _write_part(
    template: PredictionStream,
    out: Path,
    job: JobRecord,
    files: OutputFiles,
    part: Part,
    *,
    on_image: Callable[[int], object] = lambda _: None,
) -> tuple[int, PartRecord]:
    """Predict the images of a part and write its file; one that exists was written by a worker that was lost."""
    path = out / job.file(part.number)
    if not path.is_file():
        stream = template.select(part.images)
        write_atomically(path, lambda file: _write_rows(stream, file, out, job, files, on_image))
    return part.number, _read(path)


def _write_rows(
    stream: PredictionStream,
    path: Path,
    out: Path,
    job: JobRecord,
    files: OutputFiles,
    on_image: Callable[[int], object],
) -> None:
    """Write the rows of a part to a file."""
    pa, parquet = _import_parquet()
    schema = _schema(pa, job.files)
    write_row = partial(_row, out=out, job=job, files=files)
    class_names: dict[int, str] = {}
    count, rows, size = 0, list[dict[str, Any]](), 0
    with parquet.ParquetWriter(path, schema) as writer, closing(read_ahead(write_row, stream)) as written:
        for row in written:
            rows.append(row)
            count += 1
            size += sum(len(row[_COLUMNS[kind]]["bytes"] or b"") for kind in job.files)
            class_names.update((entry["value"], entry["name"]) for entry in row["classes"])
            on_image(count)
            if len(rows) == _ROWS_OF_GROUP or size >= _BYTES_OF_GROUP:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows, size = [], 0
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema))
        record = PartRecord(images=count, skipped=tuple(stream.skipped), found=class_names)
        writer.add_key_value_metadata({_METADATA_KEY: record.model_dump_json()})


def _row(prediction: Prediction, *, out: Path, job: JobRecord, files: OutputFiles) -> dict[str, Any]:
    """Row of an image; for the format png its files are written."""
    names = files.names(prediction.name)
    contents: dict[str, bytes | None] = {}
    for kind, name in names.items():
        if job.format == "parquet":
            buffer = io.BytesIO()
            files.save(kind, prediction, buffer)
            contents[kind] = buffer.getvalue()
        else:
            with writing(out):
                (out / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out / name, partial(files.save, kind, prediction))
            contents[kind] = None
    values = ImageRecord.of(prediction, prediction.name, names, job.run).model_dump(mode="json", exclude={"files"})
    size, scores = values.pop("size"), list(values.pop("scores").values())
    cells = {_COLUMNS[kind]: {"bytes": contents[kind], "path": name} for kind, name in names.items()}
    return {**values, **size, "scores": scores, **cells}


def _schema(pa: Any, kinds: Sequence[str]) -> Any:
    """Columns of a part's file: those of predictions.json, and a column of images for each kind of file."""
    text, number, integer = pa.string(), pa.float32(), pa.int32()
    region = pa.struct(
        [
            *(("name", text), ("value", integer), ("area", pa.int64()), ("share", number)),
            *(("box", pa.list_(integer)), ("confidence", number)),
        ]
    )
    return pa.schema(
        [
            *(("name", text), ("path", text), ("width", integer), ("height", integer)),
            # As the feature Image of Hugging Face's datasets stores them.
            *((_COLUMNS[kind], pa.struct([("bytes", pa.binary()), ("path", text)])) for kind in kinds),
            *(("classes", pa.list_(region)), ("scores", pa.list_(number))),
            *(("confidence", number), ("uncertainty", number)),
            ("nearest_threshold", pa.struct([("name", text), ("score", number), ("threshold", number)])),
            *(("tags", pa.list_(text)), ("scales", pa.list_(number))),
        ]
    )


def _read(path: Path) -> PartRecord:
    """What a part's file says about it, without its rows."""
    pa, parquet = _import_parquet()
    try:
        metadata = parquet.read_metadata(path).metadata or {}
        return PartRecord.model_validate_json(metadata[_METADATA_KEY])
    except (OSError, KeyError, ValidationError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: is damaged ({error})", "delete it, and continue by {skip_existing}") from None


def _import_parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            "writing predictions in parts needs pyarrow", "install it with: pip install 'tagseg[hf]'"
        ) from error
    return pyarrow, parquet
