"""`check`: look at every image and label of a dataset before hours are spent on it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from tagseg.data.dataset import Facts, ImageDataset
from tagseg.data.listing import Listing
from tagseg.data.open import Places, list_source, open_dataset
from tagseg.data.report import CheckReport
from tagseg.data.splitting import can_hold_out
from tagseg.errors import DataError

_LONG = 500  # from so many images on, a bar shows the progress
T = TypeVar("T")


def check(
    source: str | Path | ImageDataset,
    *,
    images: Places = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    sbd: str | Path | None = None,
    against: Sequence[str | Path | ImageDataset] = (),
) -> CheckReport:
    """Decode every image, count every label, and report what would make training fail.

    Args:
        source: what `open_dataset` takes, or an open dataset.
        images: as in `open_dataset`.
        split: as in `open_dataset`.
        classes: as in `open_dataset`.
        separator: as in `open_dataset`.
        sbd: as in `open_dataset`.
        against: other splits that must not share an image with this one.
    """
    missing: list[str] = []
    if isinstance(source, ImageDataset):
        title, dataset = "dataset", source
    else:
        title = str(source)
        found = list_source(source, images=images, split=split, classes=classes, separator=separator, sbd=sbd)
        dataset = found if isinstance(found, ImageDataset) else found.dataset()
        if isinstance(found, Listing):
            missing = [f"{row.where}: {row.image}" for row in found.missing]

    results = _for_each(dataset, dataset.images.facts, "checking images")
    facts = {i: result for i, result in enumerate(results) if not isinstance(result, DataError)}
    groups = _equal_files(facts)
    together = dataset.tags.T @ dataset.tags
    return CheckReport(
        source=title,
        image_count=len(dataset),
        classes=dataset.classes,
        counts=tuple(int(count) for count in dataset.tags.sum(0)),
        cooccurrence=tuple(tuple(int(count) for count in row) for row in together),
        sizes=_sizes(list(facts.values())),
        modes=dict(Counter(fact.mode for fact in facts.values()).most_common()),
        missing=tuple(missing),
        unreadable=tuple(str(result) for result in results if isinstance(result, DataError)),
        unlabelled=tuple(dataset.names[int(i)] for i in (dataset.tags.sum(1) == 0).nonzero()),
        duplicates=tuple(tuple(dataset.names[i] for i in group) for group in groups),
        contradictions=tuple(
            tuple(dataset.names[i] for i in group)
            for group in groups
            if (dataset.tags[group] != dataset.tags[group[0]]).any()
        ),
        shared=tuple(pair for other in against for pair in _shared(dataset, facts, other)),
        spare=can_hold_out(dataset),
    )


def _for_each(dataset: ImageDataset, ask: Callable[[int], T], doing: str) -> list[T | DataError]:
    """Ask something of every image, on several threads (decoding leaves Python's lock); errors are answers too."""

    def answer(index: int) -> T | DataError:
        try:
            return ask(index)
        except DataError as error:
            return error

    console = Console(stderr=True)
    quiet = len(dataset) < _LONG or not console.is_terminal
    with ThreadPoolExecutor() as pool:
        answers = pool.map(answer, range(len(dataset)))
        return list(track(answers, doing, len(dataset), console=console, transient=True, disable=quiet))


def _equal_files(facts: dict[int, Facts]) -> list[list[int]]:
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for i, fact in facts.items():
        by_digest[fact.digest].append(i)
    return [group for group in by_digest.values() if len(group) > 1]


def _shared(dataset: ImageDataset, facts: dict[int, Facts], other: str | Path | ImageDataset) -> list[tuple[str, str]]:
    """Pairs of names here and in the other split whose files are equal."""
    title = "" if isinstance(other, ImageDataset) else f"{other}: "
    opened = other if isinstance(other, ImageDataset) else open_dataset(other)
    here = {fact.digest: dataset.names[i] for i, fact in facts.items()}
    digests = _for_each(opened, opened.images.digest, "comparing splits")
    return [
        (here[digest], title + name)
        for name, digest in zip(opened.names, digests, strict=True)
        if not isinstance(digest, DataError) and digest in here
    ]


def _sizes(facts: Sequence[Facts]) -> dict[str, tuple[int, int]]:
    ordered = sorted((fact.width * fact.height, fact.width, fact.height) for fact in facts)
    if not ordered:
        return {}
    chosen = {"smallest": ordered[0], "median": ordered[len(ordered) // 2], "largest": ordered[-1]}
    return {which: (width, height) for which, (_, width, height) in chosen.items()}


def unreadable(dataset: ImageDataset) -> dict[int, DataError]:
    """The images that cannot be decoded, by position."""
    results = _for_each(dataset, dataset.images.facts, "reading images")
    return {i: result for i, result in enumerate(results) if isinstance(result, DataError)}
