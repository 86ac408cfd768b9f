"""What `check` found, for programs (`to_json`) and for people (`print`)."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class CheckReport:
    """The state of a dataset.

    Attributes:
        source: what was checked.
        image_count: how many images were found; what follows counts only those.
        classes: the class names.
        counts: in how many images each class occurs.
        cooccurrence: in how many images two classes occur together, [C][C]; the diagonal is `counts`.
        sizes: width and height of the smallest, the median and the largest image by area.
        modes: how many files store their pixels in which mode (PIL's names: RGB, L, P, CMYK, ...).
        missing: images that are listed but not there.
        unreadable: for each file that cannot be decoded, what is wrong with it.
        unlabelled: images without any label.
        duplicates: groups of images whose files are equal.
        contradictions: those groups whose images have different labels.
        shared: pairs of an image here and an equal one in another split.
        spare: whether an image can be held out of training, and none of its classes loses its last one.
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
    unlabelled: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    contradictions: tuple[tuple[str, ...], ...]
    shared: tuple[tuple[str, str], ...]
    spare: bool

    @property
    def never(self) -> tuple[str, ...]:
        """Classes that occur in no image."""
        return tuple(name for name, count in zip(self.classes, self.counts, strict=True) if count == 0)

    @property
    def always(self) -> tuple[str, ...]:
        """Classes that occur in every image."""
        return tuple(
            name for name, count in zip(self.classes, self.counts, strict=True) if count == self.image_count > 0
        )

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Groups of classes whose names are equal but for case, and for spaces, hyphens or underscores in them."""
        groups: dict[str, list[str]] = defaultdict(list)
        for name in self.classes:
            groups[re.sub(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])", "", name).casefold()].append(name)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)

    @property
    def joined(self) -> tuple[str, ...]:
        """Classes that look like several labels with another separator between them: a part is a class as well."""
        parts = {name: [part.strip() for part in re.split(r"[;,|/]", name)] for name in self.classes}
        return tuple(name for name in self.classes if len(parts[name]) > 1 and set(parts[name]) & set(self.classes))

    @property
    def problems(self) -> list[str]:
        """What would make training fail or teach nothing, one line each; empty if the dataset is fit for training."""
        found = []
        if not self.image_count:
            found.append("no image was found; name their folder or zip with images=")
        if self.missing:
            found.append(f"{_some(self.missing, 'listed image')} missing; add the files or remove the rows")
        if self.unreadable:
            found.append(f"{_some(self.unreadable, 'file')} unreadable; replace or remove them")
        if self.image_count:
            found += [
                f"class {name!r} occurs in no image, so it is never learned; add images of it or remove the class"
                for name in self.never
            ]
            found += [
                f"class {name!r} occurs in every image: nothing shows what it is not, and the network may give the "
                "name to anything; add images without it or remove the class"
                for name in self.always
            ]
        evidence = len(self.classes) - len(self.never) - len(self.always)
        if self.image_count and evidence < 2:
            found.append(
                f"only {evidence} of the classes occurs in some images and not in others, at least 2 must: masks are "
                "learned from what sets images apart; add images with other labels"
            )
        if self.image_count and not self.spare:
            found.append(
                "every image is the only one of some class, so none can be held out of training; add images, or "
                "name others with --val when you train"
            )
        return found

    @property
    def warnings(self) -> list[str]:
        """What does not stop training but may spoil its result, one line each."""
        found = []
        if self.alike:
            groups = [" = ".join(group) for group in self.alike]
            found.append(f"{_some(groups, 'group')} of classes that differ in case or spaces alone: write them alike")
        if self.joined:
            found.append(
                f"{_some(self.joined, 'class', 'classes')} perhaps of several labels: use one separator everywhere"
            )
        if self.unlabelled:
            found.append(f"{_some(self.unlabelled, 'image')} without labels: they teach background only")
        if self.duplicates:
            groups = [" = ".join(group) for group in self.duplicates]
            found.append(f"{_some(groups, 'group')} of equal files: they count several times in training")
        if self.contradictions:
            groups = [" = ".join(group) for group in self.contradictions]
            found.append(f"{_some(groups, 'group')} of equal files with different labels: correct the labels")
        if self.shared:
            pairs = [" = ".join(pair) for pair in self.shared]
            found.append(f"{_some(pairs, 'image')} also in another split: scores there will be too good")
        return found

    def to_json(self) -> str:
        """All of it as JSON."""
        names = ("never", "always", "alike", "joined", "problems", "warnings")
        derived = {name: getattr(self, name) for name in names}
        return json.dumps({**asdict(self), **derived}, indent=2, ensure_ascii=False)

    def print(self, console: Console | None = None) -> None:
        """Print it as tables."""
        console = console or Console()
        overview = Table(title=escape(self.source), show_header=False)
        overview.add_row("images", str(self.image_count))
        for which, (width, height) in self.sizes.items():
            overview.add_row(f"{which} size", f"{width} x {height}")
        overview.add_row("modes", ", ".join(f"{mode} {count}" for mode, count in self.modes.items()) or "none")
        console.print(overview)
        table = Table("class", "images", "share", "most often with")
        for i, (name, count) in enumerate(zip(self.classes, self.counts, strict=True)):
            share = f"{count / self.image_count:.1%}" if self.image_count else ""
            table.add_row(escape(name), str(count), share, escape(self._partner(i)))
        console.print(table)
        for line in self.problems:
            console.print(f"[bold red]problem[/] {escape(line)}", highlight=False)
        for line in self.warnings:
            console.print(f"[yellow]warning[/] {escape(line)}", highlight=False)
        if not self.problems:
            console.print("[green]fit for training[/]")

    def _partner(self, index: int) -> str:
        others = [(count, name) for name, count in zip(self.classes, self.cooccurrence[index], strict=True)]
        others.pop(index)
        count, name = max(others, key=lambda other: other[0], default=(0, ""))
        return f"{name} ({count})" if count else ""


def _some(items: Sequence[str], noun: str, plural: str = "") -> str:
    """For example "3 files (a.jpg, b.jpg, ...) are", with the first two by name."""
    named = ", ".join(items[:2]) + (", ..." if len(items) > 2 else "")
    return (
        f"{len(items)} {noun} ({named}) is" if len(items) == 1 else f"{len(items)} {plural or noun + 's'} ({named}) are"
    )
