"""Validate a dataset before training: decode every image once, count every label, compare images and splits.

Two images are almost equal if the layouts of their 16 x 16 gray thumbnails correlate by 0.9. The means of all rows and
columns are subtracted first, because horizons and skies, which many photos share, would correlate as well. Among the 56
million pairs of VOC's training images, one pair reaches 0.9, a photo and its gray copy; the next has 0.86.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tagseg._progress import ProgressBar, track
from tagseg.data.check_report import CheckReport
from tagseg.data.images import THUMBNAIL_SIDE, ImageInfo
from tagseg.data.records import Records
from tagseg.data.source import DataSource
from tagseg.errors import DataError

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is to be reported before that
    from tagseg.data.dataset import ImageDataset

Thumbnails = NDArray[np.uint8]  # [N, THUMBNAIL_SIDE, THUMBNAIL_SIDE]

_MIN_CORRELATION = 0.9
_MIN_LENGTH = THUMBNAIL_SIDE  # one gray level of deviation: less is the noise of rounding
_BLOCK = 2048  # images that are compared at a time: 16 MiB


def check(
    source: DataSource,
    *,
    val: DataSource | None,
    crop: int,
    fraction: float,
    seed: int,
    progress: bool = False,
) -> CheckReport:
    """Validate a dataset before training.

    Args:
        source: Tagged images.
        val: Validation images; None holds some out as training does.
        crop: Side of the crop in training.
        fraction: Fraction of the images to hold out.
        seed: Random seed of training, which chooses these.
        progress: Show the progress on stderr.
    """
    from tagseg.data.dataset import hold_out

    with ProgressBar("Listing images", quiet=not progress):
        dataset, records = source.open_available()
    infos, unreadable = _read_images(dataset, "Checking images", progress=progress)
    equal = _equal_files(infos)
    repeats = {i for group in equal for i in group[1:]}
    originals = [i for i in infos if i not in repeats]
    sources = [records]
    shared: list[tuple[str, str]] = []
    near_shared: list[tuple[str, str]] = []
    if val is None:
        validation = hold_out(dataset, fraction, seed=seed)[1]
    else:
        with ProgressBar("Listing validation images", quiet=not progress):
            validation, val_records = val.open_available(dataset.classes)
        val_infos, val_unreadable = _read_images(validation, "Checking validation images", progress=progress)
        unreadable += val_unreadable
        sources.append(val_records)
        shared, near_shared = _shared(
            dataset, {i: infos[i] for i in originals}, validation, val_infos, progress=progress
        )
    near_duplicates = find_copies(_thumbnails([infos[i] for i in originals]), progress=progress)
    cooccurrence = dataset.labels.T @ dataset.labels
    return CheckReport(
        source=source.path,
        image_count=len(dataset),
        classes=dataset.classes,
        counts=_counts(dataset),
        cooccurrence=tuple(tuple(int(count) for count in row) for row in cooccurrence),
        validation=None if val is None else val.path,
        validation_image_count=len(validation),
        validation_counts=_counts(validation),
        crop=crop,
        sizes=_sizes(list(infos.values())),
        modes=dict(Counter(info.mode for info in infos.values()).most_common()),
        smaller_than_crop=tuple(
            dataset.image_ids[i] for i, info in infos.items() if max(info.width, info.height) < crop
        ),
        missing=tuple(f"{record.location}: {record.image}" for entry in sources for record in entry.missing),
        unreadable=tuple(unreadable),
        unlabeled=tuple(dataset.image_ids[int(i)] for i in (dataset.labels.sum(1) == 0).nonzero()),
        repeated_rows=tuple(tuple(row.location for row in rows) for entry in sources for rows in entry.repeated),
        one_tag_per_row=all(_one_tag_per_row(entry) for entry in sources),
        duplicates=tuple(tuple(dataset.image_ids[i] for i in group) for group in equal),
        contradictions=tuple(
            tuple(dataset.image_ids[i] for i in group)
            for group in equal
            if (dataset.labels[group] != dataset.labels[group[0]]).any()
        ),
        near_duplicates=tuple(
            (dataset.image_ids[originals[i]], dataset.image_ids[originals[j]]) for i, j in near_duplicates.items()
        ),
        validation_duplicates=tuple(shared),
        validation_near_duplicates=tuple(near_shared),
    )


def decode_all(
    dataset: "ImageDataset", title: str = "Reading images", *, progress: bool = False
) -> list[ImageInfo | DataError]:
    """Decode every image and return facts about it, or the error of one that cannot be decoded.

    Threads are enough, because decoding releases the GIL.

    Args:
        dataset: Dataset to decode.
        title: What the progress is called.
        progress: As in `check`.
    """
    with ThreadPoolExecutor() as pool:
        results = pool.map(partial(_image_info, dataset), range(len(dataset)))
        return list(track(results, title, len(dataset), quiet=not progress))


def _image_info(dataset: "ImageDataset", index: int) -> ImageInfo | DataError:
    try:
        return dataset.images.info(index)
    except DataError as error:
        return error


def _read_images(dataset: "ImageDataset", title: str, *, progress: bool) -> tuple[dict[int, ImageInfo], list[str]]:
    """Facts about every image by position, and what is wrong with those that cannot be decoded."""
    results = decode_all(dataset, title, progress=progress)
    infos = {i: result for i, result in enumerate(results) if not isinstance(result, DataError)}
    return infos, [result.problem for result in results if isinstance(result, DataError)]


def find_copies(images: Thumbnails, originals: Thumbnails | None = None, *, progress: bool = False) -> dict[int, int]:
    """Find the most similar original of each image that has an almost equal one.

    Such are scaled, compressed or brightened copies, and neighboring frames of a video.

    Args:
        images: Thumbnails of images.
        originals: Those to compare with; None means that each image is compared with those before it.
        progress: Show the progress on stderr.

    Returns:
        Position of the original by the position of the image.
    """
    copies = {}
    count = ceil(len(images) / _BLOCK)
    total = count * (count + 1) // 2 if originals is None else count * ceil(len(originals) / _BLOCK)
    with ProgressBar("Comparing images, block", total, quiet=not progress) as bar:
        done = 0
        for start, queries in _blocks(images):
            best, best_positions = np.full(len(queries), _MIN_CORRELATION, np.float32), np.full(len(queries), -1)
            for first, candidates in _blocks(images[: start + len(queries)] if originals is None else originals):
                correlations = queries @ candidates.T
                if originals is None and first == start:
                    correlations = np.tril(correlations, -1)
                positions = correlations.argmax(1)
                values = correlations[np.arange(len(queries)), positions]
                better = values > best
                best[better], best_positions[better] = values[better], first + positions[better]
                done += 1
                bar.update(done)
            copies.update({int(start + i): int(best_positions[i]) for i in np.flatnonzero(best_positions >= 0)})
    return copies


def _blocks(thumbnails: Thumbnails) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Blocks of layouts, each of length 1, with the position of their first image; that of one color is 0."""
    for start in range(0, len(thumbnails), _BLOCK):
        gray = thumbnails[start : start + _BLOCK].astype(np.float32)
        gray -= gray.mean(1, keepdims=True)
        gray -= gray.mean(2, keepdims=True)
        layout = gray.reshape(len(gray), -1)
        length = np.linalg.norm(layout, axis=1, keepdims=True)
        yield start, np.where(length > _MIN_LENGTH, layout / np.maximum(length, _MIN_LENGTH), 0)


def _counts(dataset: "ImageDataset") -> tuple[int, ...]:
    return tuple(int(count) for count in dataset.labels.sum(0))


def _equal_files(infos: Mapping[int, ImageInfo]) -> list[list[int]]:
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for i, info in infos.items():
        by_digest[info.digest].append(i)
    return [group for group in by_digest.values() if len(group) > 1]


def _shared(
    dataset: "ImageDataset",
    infos: Mapping[int, ImageInfo],
    validation: "ImageDataset",
    val_infos: Mapping[int, ImageInfo],
    *,
    progress: bool,
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs of an image and a validation image that are equal, and pairs that are almost equal."""
    by_digest = {info.digest: i for i, info in infos.items()}
    equal = [(by_digest[info.digest], j) for j, info in val_infos.items() if info.digest in by_digest]
    positions, others = list(infos), [j for j, info in val_infos.items() if info.digest not in by_digest]
    queries, candidates = _thumbnails([val_infos[j] for j in others]), _thumbnails(list(infos.values()))
    copies = find_copies(queries, candidates, progress=progress)
    near = [(positions[i], others[j]) for j, i in copies.items()]
    return (
        [(dataset.image_ids[i], validation.image_ids[j]) for i, j in equal],
        [(dataset.image_ids[i], validation.image_ids[j]) for i, j in near],
    )


def _thumbnails(infos: Sequence[ImageInfo]) -> Thumbnails:
    return np.array([info.thumbnail for info in infos], np.uint8)


def _one_tag_per_row(records: Records) -> bool:
    """Whether no row has several tags, and no row of an image that is listed again lacks one."""
    repeated = {record.image for group in records.repeated for record in group}
    single = (record for record in records.records if record.image not in repeated)
    return all(len(record.labels) == 1 for group in records.repeated for record in group) and all(
        len(record.labels) <= 1 for record in single
    )


def _sizes(infos: Sequence[ImageInfo]) -> dict[str, tuple[int, int]]:
    by_area = sorted((info.width * info.height, info.width, info.height) for info in infos)
    if not by_area:
        return {}
    examples = {"smallest": by_area[0], "median": by_area[len(by_area) // 2], "largest": by_area[-1]}
    return {name: (width, height) for name, (_, width, height) in examples.items()}
