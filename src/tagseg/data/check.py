"""Validate a dataset before training: decode every image, count every label, compare files between splits."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tagseg.data.images import ImageInfo
from tagseg.data.records import Record
from tagseg.data.source import DataSource
from tagseg.errors import DataError

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is to be reported before that
    from rich.console import Console

    from tagseg.data.dataset import ImageDataset

    Checkable = str | Path | DataSource | ImageDataset

_MIN_IMAGES_FOR_BAR = 500  # fewer take too little time for a progress bar
T = TypeVar("T")


@dataclass(frozen=True)
class CheckReport:
    """Result of `check`.

    Attributes:
        source: Name of the dataset.
        image_count: Number of images whose file exists; the other attributes count only these.
        classes: Class names.
        counts: Number of images per class.
        cooccurrence: Number of images that show both of two classes, [C][C]; the diagonal is `counts`.
        sizes: Width and height of the smallest, the median and the largest image by area.
        modes: Number of files per mode in which pixels are stored (PIL's names: RGB, L, P, CMYK, ...).
        missing: Images that are listed but do not exist.
        unreadable: Error message of each file that cannot be decoded.
        unlabeled: Images without labels.
        duplicates: Groups of images whose files are equal.
        contradictions: Groups of `duplicates` whose labels differ.
        shared: Pairs of an image and an equal one in another split.
        can_hold_out: Whether an image can be held out for validation so that its classes keep a training image.
    """

    source: str
    image_count: int
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    cooccurrence: tuple[tuple[int, ...], ...]
    sizes: dict[str, tuple[int, int]]
    modes: dict[str, int]
    missing: tuple[str, ...]
    unreadable: tuple[str, ...]
    unlabeled: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    contradictions: tuple[tuple[str, ...], ...]
    shared: tuple[tuple[str, str], ...]
    can_hold_out: bool

    @property
    def absent_classes(self) -> tuple[str, ...]:
        """Classes that occur in no image."""
        return tuple(name for name, count in zip(self.classes, self.counts, strict=True) if count == 0)

    @property
    def constant_classes(self) -> tuple[str, ...]:
        """Classes that occur in every image."""
        return tuple(
            name for name, count in zip(self.classes, self.counts, strict=True) if count == self.image_count > 0
        )

    @property
    def similar_classes(self) -> tuple[tuple[str, ...], ...]:
        """Groups of classes whose names differ only in case, spaces, hyphens or underscores."""
        groups: dict[str, list[str]] = defaultdict(list)
        for name in self.classes:
            groups[re.sub(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])", "", name).casefold()].append(name)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)

    @property
    def unsplit_classes(self) -> tuple[str, ...]:
        """Classes that look like several labels with another separator, because a part of the name is a class."""
        parts = {name: [part.strip() for part in re.split(r"[;,|/]", name)] for name in self.classes}
        return tuple(name for name in self.classes if len(parts[name]) > 1 and set(parts[name]) & set(self.classes))

    @property
    def problems(self) -> list[str]:
        """Reasons why training would fail or learn nothing, one line each; empty if the dataset is fit for training."""
        lines = []
        if not self.image_count:
            lines.append("no image was found; name the folder or zip that holds the images")
        if self.missing:
            lines.append(f"{_count(self.missing, 'listed image')} missing; add the files or remove the rows")
        if self.unreadable:
            lines.append(f"{_count(self.unreadable, 'file')} unreadable; replace or remove them")
        if self.image_count:
            lines += [
                f"class {name!r} occurs in no image, so it cannot be learned; add images of it or remove the class"
                for name in self.absent_classes
            ]
            lines += [
                f"class {name!r} occurs in every image: without images that lack it, its masks may cover anything; "
                "add images without it or remove the class"
                for name in self.constant_classes
            ]
        informative = len(self.classes) - len(self.absent_classes) - len(self.constant_classes)
        if self.image_count and informative < 2:
            lines.append(
                f"only {informative} of the classes occurs in some images and not in others, at least 2 must: masks "
                "are learned from differences between images; add images with other labels"
            )
        if self.image_count and not self.can_hold_out:
            lines.append(
                "every image is the only one of some class, so none can be held out for validation; add images, or "
                "name other images for validation when you train"
            )
        return lines

    @property
    def warnings(self) -> list[str]:
        """Reasons why the result of training may be worse than possible, one line each."""
        lines = []
        if self.similar_classes:
            groups = [" = ".join(group) for group in self.similar_classes]
            lines.append(f"{_count(groups, 'group')} of classes that differ in case or spaces alone: use one spelling")
        if self.unsplit_classes:
            names = _count(self.unsplit_classes, "class", "classes")
            lines.append(f"{names} perhaps several labels: use one separator everywhere")
        if self.unlabeled:
            lines.append(f"{_count(self.unlabeled, 'image')} without labels: only background is learned from them")
        if self.duplicates:
            groups = [" = ".join(group) for group in self.duplicates]
            lines.append(f"{_count(groups, 'group')} of equal files: they count several times in training")
        if self.contradictions:
            groups = [" = ".join(group) for group in self.contradictions]
            lines.append(f"{_count(groups, 'group')} of equal files with different labels: correct the labels")
        if self.shared:
            pairs = [" = ".join(pair) for pair in self.shared]
            lines.append(f"{_count(pairs, 'image')} also in another split: scores there will be too high")
        return lines

    def to_json(self) -> str:
        """Serialize the report, with its problems and warnings, as JSON."""
        names = ("absent_classes", "constant_classes", "similar_classes", "unsplit_classes", "problems", "warnings")
        derived = {name: getattr(self, name) for name in names}
        return json.dumps({**asdict(self), **derived}, indent=2, ensure_ascii=False)

    def print(self, console: "Console | None" = None) -> None:
        """Print the report as tables."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        console = console or Console()
        overview = Table(title=escape(self.source), show_header=False)
        overview.add_row("images", str(self.image_count))
        for name, (width, height) in self.sizes.items():
            overview.add_row(f"{name} size", f"{width} x {height}")
        overview.add_row("modes", ", ".join(f"{mode} {count}" for mode, count in self.modes.items()) or "none")
        console.print(overview)
        table = Table("class", "images", "share", "most often with")
        for i, (name, count) in enumerate(zip(self.classes, self.counts, strict=True)):
            share = f"{count / self.image_count:.1%}" if self.image_count else ""
            table.add_row(escape(name), str(count), share, escape(self._most_frequent_partner(i)))
        console.print(table)
        for line in self.problems:
            console.print(f"[bold red]problem[/] {escape(line)}", highlight=False)
        for line in self.warnings:
            console.print(f"[yellow]warning[/] {escape(line)}", highlight=False)
        if not self.problems:
            console.print("[green]fit for training[/]")

    def _most_frequent_partner(self, index: int) -> str:
        others = [(count, name) for name, count in zip(self.classes, self.cooccurrence[index], strict=True)]
        others.pop(index)
        count, name = max(others, key=lambda other: other[0], default=(0, ""))
        return f"{name} ({count})" if count else ""


def check(
    source: "Checkable",
    *,
    classes: Sequence[str] | None = None,
    against: "Sequence[Checkable]" = (),
    progress: bool = False,
) -> CheckReport:
    """Validate a dataset before training: decode every image and count every label.

    Args:
        source: Path or `DataSource`, or an open dataset.
        classes: Class names in their order, as in `DataSource.open`.
        against: Other splits, which must not share an image with this one.
        progress: Show a progress bar if the dataset is large and stderr is a terminal.
    """
    from tagseg.data.split import can_hold_out

    missing: tuple[Record, ...] = ()
    if isinstance(source, str | Path | DataSource):
        source = DataSource.of(source)
        title = source.path
        dataset, missing = source.open_available(classes)
    else:
        title, dataset = "dataset", source
    results = _map_images(dataset, dataset.images.info, "Checking images", progress=progress)
    infos = {i: result for i, result in enumerate(results) if not isinstance(result, DataError)}
    groups = _equal_files(infos)
    cooccurrence = dataset.labels.T @ dataset.labels
    return CheckReport(
        source=title,
        image_count=len(dataset),
        classes=dataset.classes,
        counts=tuple(int(count) for count in dataset.labels.sum(0)),
        cooccurrence=tuple(tuple(int(count) for count in row) for row in cooccurrence),
        sizes=_sizes(list(infos.values())),
        modes=dict(Counter(info.mode for info in infos.values()).most_common()),
        missing=tuple(f"{record.location}: {record.image}" for record in missing),
        unreadable=tuple(str(result) for result in results if isinstance(result, DataError)),
        unlabeled=tuple(dataset.image_ids[int(i)] for i in (dataset.labels.sum(1) == 0).nonzero()),
        duplicates=tuple(tuple(dataset.image_ids[i] for i in group) for group in groups),
        contradictions=tuple(
            tuple(dataset.image_ids[i] for i in group)
            for group in groups
            if (dataset.labels[group] != dataset.labels[group[0]]).any()
        ),
        shared=tuple(pair for other in against for pair in _shared(dataset, infos, other, progress=progress)),
        can_hold_out=can_hold_out(dataset),
    )


def find_unreadable(dataset: "ImageDataset", *, progress: bool = False) -> dict[int, DataError]:
    """Decode every image and return the errors of those that cannot be decoded, by position.

    Args:
        dataset: Dataset to decode.
        progress: As in `check`.
    """
    results = _map_images(dataset, dataset.images.info, "Reading images", progress=progress)
    return {i: result for i, result in enumerate(results) if isinstance(result, DataError)}


def _map_images(
    dataset: "ImageDataset", function: Callable[[int], T], title: str, *, progress: bool
) -> list[T | DataError]:
    """Call a function for the index of every image and collect its results and errors.

    Threads are enough, because decoding releases the GIL.
    """

    def call(index: int) -> T | DataError:
        try:
            return function(index)
        except DataError as error:
            return error

    with ThreadPoolExecutor() as pool:
        results = pool.map(call, range(len(dataset)))
        if not progress or len(dataset) < _MIN_IMAGES_FOR_BAR:
            return list(results)
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        disable = not console.is_terminal
        return list(track(results, title, len(dataset), console=console, transient=True, disable=disable))


def _equal_files(infos: Mapping[int, ImageInfo]) -> list[list[int]]:
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for i, info in infos.items():
        by_digest[info.digest].append(i)
    return [group for group in by_digest.values() if len(group) > 1]


def _shared(
    dataset: "ImageDataset",
    infos: Mapping[int, ImageInfo],
    other: "Checkable",
    *,
    progress: bool,
) -> list[tuple[str, str]]:
    """Pairs of image IDs, in this and in the other split, whose files are equal."""
    prefix = ""
    if isinstance(other, str | Path | DataSource):
        other_source = DataSource.of(other)
        prefix, other = f"{other_source.path}: ", other_source.open()
    image_ids = {info.digest: dataset.image_ids[i] for i, info in infos.items()}
    digests = _map_images(other, other.images.digest, "Comparing splits", progress=progress)
    return [
        (image_ids[digest], prefix + image_id)
        for image_id, digest in zip(other.image_ids, digests, strict=True)
        if not isinstance(digest, DataError) and digest in image_ids
    ]


def _sizes(infos: Sequence[ImageInfo]) -> dict[str, tuple[int, int]]:
    by_area = sorted((info.width * info.height, info.width, info.height) for info in infos)
    if not by_area:
        return {}
    examples = {"smallest": by_area[0], "median": by_area[len(by_area) // 2], "largest": by_area[-1]}
    return {name: (width, height) for name, (_, width, height) in examples.items()}


def _count(items: Sequence[str], noun: str, plural: str = "") -> str:
    """Format a subject such as "3 files (a.jpg, b.jpg, ...) are", which names the first two items."""
    examples = ", ".join(items[:2]) + (", ..." if len(items) > 2 else "")
    if len(items) == 1:
        return f"1 {noun} ({examples}) is"
    return f"{len(items)} {plural or noun + 's'} ({examples}) are"
