"""Pseudo labels of tagged images: masks limited to each image's tags, in VOC's layout, to train the next network on.

OUT/SegmentationClass/ID.png           masks: 0 is background, k is the k-th class, 255 is ignored
OUT/ImageSets/Segmentation/train.txt   image IDs
OUT/pseudo_labels.json                 how the masks were made, and where their images and tags are
OUT/coverage.json                      how much of the images the classes cover
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tagseg._files import (
    has_no_files,
    hold_folder,
    make_folder,
    remove_part_files,
    write_atomically,
    write_text,
    writing,
)
from tagseg._json import as_json, differences, parse_json
from tagseg._progress import ProgressBar
from tagseg._ray import part_size, run_on_ray
from tagseg.data import DataSource, ImageDataset
from tagseg.data.files import FileRef, read_text
from tagseg.data.mask_folders import PSEUDO_LABELS_FILE, pseudo_label_file
from tagseg.data.masks import IGNORE_LABEL, Mask, read_mask
from tagseg.errors import ConfigError, DataError
from tagseg.models.serialization import fingerprint
from tagseg.predict.confidence import class_shares
from tagseg.predict.engine import TRUE_TAGS, ImageSegmentation
from tagseg.predict.pipeline import Sample, read_ahead, run_pipeline
from tagseg.predict.predictor import Predictor
from tagseg.predict.render import mask_image
from tagseg.predict.resize import resize_in_bands
from tagseg.predict.settings import FixedClasses, InferenceSettings

COVERAGE_FILE = "coverage.json"
_Counts = NDArray[np.int64]  # pixels of each mask value, [256]


@dataclass(frozen=True)
class ClassCoverage:
    """Coverage of one class.

    Attributes:
        name: Name of the class; the background has all images.
        tagged_images: Images with its tag.
        covered_images: Images in which it has a pixel.
        pixel_share: Its share of the pixels that are not ignored, over all images.
        ignored_share: Share of ignored pixels in the images with its tag.
    """

    name: str
    tagged_images: int
    covered_images: int
    pixel_share: float
    ignored_share: float


@dataclass(frozen=True)
class Coverage:
    """Coverage of pseudo labels.

    Attributes:
        images: Number of images.
        ignored_share: Share of ignored pixels.
        classes: Coverage of the background and of each class.
    """

    images: int
    ignored_share: float
    classes: tuple[ClassCoverage, ...]

    def to_json(self) -> str:
        """The coverage as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def print(self, console: Console | None = None) -> None:
        """Print a table."""
        table = Table(title="Coverage of the pseudo labels")
        table.add_column("class")
        for title in ("images with tag", "with a pixel", "pixels %", "ignored %"):
            table.add_column(title, justify="right")
        for row in self.classes:
            shares = (f"{100 * share:.1f}" for share in (row.pixel_share, row.ignored_share))
            table.add_row(row.name, f"{row.tagged_images:,}", f"{row.covered_images:,}", *shares)
        (console or Console()).print(table)


def make_pseudo_labels(
    predictor: Predictor,
    source: DataSource,
    out: Path,
    *,
    tta: bool = False,
    crf: bool = False,
    ignore_below: float = 0.0,
    batch_size: int | None = None,
    ray: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Coverage:
    """Write pseudo labels of tagged images, or resume an interrupted call; masks that exist are kept.

    Args:
        predictor: Model.
        source: Tagged images.
        out: Folder to write to.
        tta: Test-time augmentation.
        crf: Refine by a dense CRF.
        ignore_below: Pixels whose class is less probable become 255.
        batch_size: Images of one size that run together; by default what suits the device.
        ray: Ray cluster to predict on, as in `run_on_ray`; None for this process.
        workers: Number of workers of the cluster.
        progress: Show a progress bar.
    """
    if not 0 <= ignore_below <= 1:
        raise ConfigError(f"ignore_below is a probability from 0 to 1, got {ignore_below}")
    if len(predictor.classes) >= IGNORE_LABEL:
        raise ConfigError(f"masks hold at most {IGNORE_LABEL - 1} classes, the model has {len(predictor.classes)}")
    with hold_folder(out):
        remove_part_files(out)
        return _make(
            predictor,
            source,
            out,
            tta=tta,
            crf=crf,
            ignore_below=ignore_below,
            batch_size=batch_size,
            ray=ray,
            workers=workers,
            progress=progress,
        )


def _make(
    predictor: Predictor,
    source: DataSource,
    out: Path,
    *,
    tta: bool,
    crf: bool,
    ignore_below: float,
    batch_size: int | None,
    ray: str | None,
    workers: int | None,
    progress: bool,
) -> Coverage:
    """`make_pseudo_labels` with the lock of the folder."""
    data = source.open(predictor.classes)
    settings = predictor.settings.for_tta(tta)
    _prepare_folder(
        out,
        {
            "data": source.located().describe(),
            "classes": list(predictor.classes),
            "model": {**predictor.description, "weights": fingerprint(predictor.engine.network)},
            "inference": asdict(settings),
            "crf": crf,
            "ignore_below": ignore_below,
        },
    )
    files = [pseudo_label_file(out, image_id) for image_id in data.image_ids]
    if len(set(files)) < len(files):
        raise DataError(f"{source.path}: images have the same name, so their masks would too", "rename them")
    finished = [index for index, file in enumerate(files) if file.is_file()]
    pending = sorted(set(range(len(files))) - set(finished))
    counts = dict(read_ahead(lambda index: (index, _count(read_mask(FileRef(files[index])))), finished))

    task = _MaskTask(predictor, settings, crf, ignore_below, batch_size)
    with ProgressBar("Pseudo labels", len(pending), quiet=not progress) as bar:
        if ray is None or not pending:
            results = task.write(_MaskPart.of(data, files, pending))
        else:
            size = part_size(len(pending))
            bar.note(f"starting workers; progress comes in parts of {size:,} images")
            parts = [_MaskPart.of(data, files, pending[start : start + size]) for start in range(0, len(pending), size)]
            results = chain.from_iterable(
                run_on_ray(
                    ray,
                    task,
                    parts,
                    folder=out,
                    resume="run the same command again",
                    on_gpus=predictor.requested_device != "cpu",
                    workers=workers,
                )
            )
        for number, (index, pixels) in enumerate(results, start=1):
            counts[index] = pixels
            bar.text = ""
            bar.update(number)
    remove_part_files(out)  # of workers that were lost
    coverage = _coverage(data, [counts[index] for index in range(len(files))])
    write_text(out / COVERAGE_FILE, coverage.to_json())
    ids = out / "ImageSets" / "Segmentation" / "train.txt"
    make_folder(ids.parent)
    text = "".join(f"{image_id}\n" for image_id in data.image_ids)
    write_text(ids, text)
    return coverage


@dataclass(frozen=True)
class _MaskPart:
    """Images whose masks are written together.

    Attributes:
        indices: Positions of the images in the whole dataset.
        data: The images.
        files: Files of their masks.
    """

    indices: Sequence[int]
    data: ImageDataset
    files: Sequence[Path]

    @classmethod
    def of(cls, data: ImageDataset, files: Sequence[Path], indices: Sequence[int]) -> Self:
        return cls(indices, data.subset(indices), [files[index] for index in indices])

    def __str__(self) -> str:
        return f"the images {self.data.image_ids[0]} to {self.data.image_ids[-1]}"


@dataclass(frozen=True)
class _MaskTask:
    """Writes masks, with the arguments of `make_pseudo_labels`."""

    predictor: Predictor
    settings: InferenceSettings
    crf: bool
    ignore_below: float
    batch_size: int | None

    def __call__(self, part: _MaskPart) -> list[tuple[int, _Counts]]:
        """Write the masks of a part, and count their pixels."""
        return list(self.write(part))

    def write(self, part: _MaskPart) -> Iterator[tuple[int, _Counts]]:
        """Write the masks of a part; yield the position of each image and the pixels of each value."""
        read = partial(self._read, part)
        samples = read_ahead(read, range(len(part.files)), size=lambda sample: sample.image.nbytes)
        results = run_pipeline(self.predictor.engine, samples, self.settings, crf=self.crf, batch_size=self.batch_size)
        segmentations = ((sample.key, result.segmentations[TRUE_TAGS]) for sample, result in results)
        return read_ahead(partial(self._write_mask, part), segmentations)

    def _read(self, part: _MaskPart, position: int) -> Sample[int]:
        tags = FixedClasses(tuple(int(k) for k in part.data.labels[position].nonzero().flatten()))
        keep_probs = self.ignore_below > 0
        return Sample(position, part.data.images.read(position), {TRUE_TAGS: tags}, keep_probs=keep_probs)

    def _write_mask(self, part: _MaskPart, result: tuple[int, ImageSegmentation]) -> tuple[int, _Counts]:
        position, segmentation = result
        mask, file = ignore_uncertain(segmentation, self.ignore_below), part.files[position]
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda path: mask_image(mask).save(path, "PNG"))
        return part.indices[position], _count(mask)


def ignore_uncertain(segmentation: ImageSegmentation, ignore_below: float) -> Mask:
    """Mask of an image in which pixels are 255 if the probability of their class is lower."""
    mask = segmentation.mask.astype(np.uint8)
    if segmentation.probs is None or not ignore_below:
        return mask
    height, width = mask.shape
    for top, rows in resize_in_bands(segmentation.probs[None], (height, width)):
        probability = class_shares(rows)[0].amax(0)
        mask[top : top + rows.shape[2]][(probability < ignore_below).numpy()] = IGNORE_LABEL
    return mask


def _prepare_folder(out: Path, settings: dict[str, Any]) -> None:
    """Make the folder, or check that its masks were made with the same settings."""
    settings = as_json(settings)
    path = out / PSEUDO_LABELS_FILE
    if path.is_file():
        advice = "choose another folder with {out}, or delete that one"
        existing = parse_json(read_text(path), path, advice, error=ConfigError)
        if found := list(differences(existing, settings)):
            raise ConfigError(
                f"{out} holds pseudo labels of other settings ({'; '.join(found[:3])})",
                advice,
            )
        return
    if not has_no_files(out):
        raise ConfigError(f"{out} exists and is no folder of pseudo labels", "choose another folder with {out}")
    make_folder(out)
    text = json.dumps(settings, indent=2) + "\n"
    write_text(path, text)


def _count(mask: Mask) -> _Counts:
    return np.bincount(mask.ravel(), minlength=256)


def _coverage(data: ImageDataset, counts: Iterable[_Counts]) -> Coverage:
    """Coverage of masks with these pixel counts."""
    table = np.stack(list(counts))  # [N, 256]
    pixels, ignored = table.sum(1), table[:, IGNORE_LABEL]
    labeled = max(1, int(pixels.sum() - ignored.sum()))

    def rows() -> Iterator[ClassCoverage]:
        for value, name in enumerate(("background", *data.classes)):
            tagged = np.ones(len(table), bool) if value == 0 else data.labels[:, value - 1].numpy() > 0
            yield ClassCoverage(
                name=name,
                tagged_images=int(tagged.sum()),
                covered_images=int((table[:, value] > 0).sum()),
                pixel_share=float(table[:, value].sum() / labeled),
                ignored_share=float(ignored[tagged].sum() / max(1, pixels[tagged].sum())),
            )

    return Coverage(len(table), float(ignored.sum() / max(1, pixels.sum())), tuple(rows()))
