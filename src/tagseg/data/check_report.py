"""The report of `tagseg check`: facts about a dataset, what follows from them for training, and how both are printed.

docs/schemas/check.schema.json is the schema of its JSON; `python -m tools.schemas` writes it.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, computed_field

from tagseg.data.findings import Finding, find_problems
from tagseg.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

Verdict = Literal["fit", "fit with warnings", "not fit"]

_STYLES = {"problem": "bold red", "warning": "yellow", "note": "cyan"}


class CheckReport(BaseModel):
    """Report of `check`. Lists of numbers and names have the order of `classes`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    version: Literal[1] = 1
    """Version of this format; it grows if a field changes its meaning or is removed."""
    source: str
    """Path of the dataset."""
    image_count: int
    """Number of images whose file exists; the other fields count only these."""
    classes: tuple[str, ...]
    """Class names."""
    counts: tuple[int, ...]
    """Number of images of each class; those that training would hold out are included."""
    cooccurrence: tuple[tuple[int, ...], ...]
    """Number of images that show both of two classes; the diagonal is counts."""
    validation: str | None
    """Path of the validation data; null if training would hold validation images out."""
    validation_image_count: int
    """Number of validation images, named or held out."""
    validation_counts: tuple[int, ...]
    """Number of validation images of each class."""
    crop: int
    """Side of the crop in training, in pixels."""
    sizes: dict[str, tuple[int, int]]
    """Width and height of the smallest, the median and the largest image by area."""
    modes: dict[str, int]
    """Number of files by the mode in which pixels are stored (PIL's names: RGB, L, P, CMYK, ...)."""
    smaller_than_crop: tuple[str, ...]
    """Images whose longest side is shorter than the crop."""
    missing: tuple[str, ...]
    """Images that are listed but do not exist, each with the place that lists it; also validation images."""
    unreadable: tuple[str, ...]
    """What is wrong with each file that cannot be decoded; also of validation images."""
    unlabeled: tuple[str, ...]
    """Images without tags: negatives, which show none of the classes."""
    repeated_rows: tuple[tuple[str, ...], ...]
    """Places that list one image with different tags, which are combined: a group for each image."""
    one_tag_per_row: bool
    """Whether such rows have one tag each, as in a table that lists an image once for each of its tags."""
    duplicates: tuple[tuple[str, ...], ...]
    """Groups of images whose files are equal."""
    contradictions: tuple[tuple[str, ...], ...]
    """Groups of duplicates whose tags differ."""
    near_duplicates: tuple[tuple[str, str], ...]
    """Pairs of almost equal images: each that has one, and the most similar image before it."""
    validation_duplicates: tuple[tuple[str, str], ...]
    """Pairs of an image and a validation image whose files are equal, if validation data was named."""
    validation_near_duplicates: tuple[tuple[str, str], ...]
    """Pairs of an image and a validation image that are almost equal, if validation data was named."""

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What follows for training: problems first, then warnings and notes."""
        return find_problems(self)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Verdict:
        """Whether the dataset is fit for training; notes do not count."""
        return "not fit" if self.problems else "fit with warnings" if self.warnings else "fit"

    @property
    def problems(self) -> list[str]:
        """Reasons why training would fail or learn nothing, one line each; empty if the dataset is fit for training."""
        return [finding.message for finding in self.findings if finding.level == "problem"]

    @property
    def warnings(self) -> list[str]:
        """Reasons why the result of training may be worse than possible, one line each."""
        return [finding.message for finding in self.findings if finding.level == "warning"]

    def to_json(self) -> str:
        """Serialize the report with its findings and its verdict."""
        return self.model_dump_json(indent=2)

    def print(self, console: "Console | None" = None) -> None:
        """Print the report: tables, findings, and the verdict as the last line."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        console = console or Console()
        overview = Table(title=escape(printable(self.source)), show_header=False)
        for name, value in self._overview():
            overview.add_row(name, escape(printable(value)))
        console.print(overview)
        table = Table("class", "images", "share", "validation", "most often with")
        for i, (name, count) in enumerate(zip(self.classes, self.counts, strict=True)):
            share = f"{count / self.image_count:.1%}" if self.image_count else ""
            partner = self._most_frequent_partner(i)
            table.add_row(escape(name), f"{count:,}", share, f"{self.validation_counts[i]:,}", escape(partner))
        console.print(table)
        for finding in self.findings:
            style = _STYLES[finding.level]
            console.print(f"[{style}]{finding.level}[/] {escape(printable(finding.message))}", highlight=False)
        console.print(f"[bold]{self._verdict_line()}[/]", highlight=False)

    def _overview(self) -> Iterable[tuple[str, str]]:
        yield "images", f"{self.image_count:,}"
        yield (
            "validation images",
            f"{self.validation_image_count:,} {f'of {self.validation}' if self.validation else 'of these, held out'}",
        )
        for name, (width, height) in self.sizes.items():
            yield f"{name} size", f"{width} x {height}"
        yield "modes", ", ".join(f"{mode} {count:,}" for mode, count in self.modes.items()) or "none"

    def _verdict_line(self) -> str:
        if problems := self.problems:
            return f"not fit for training: {_number_of(problems, 'problem')}"
        if warnings := self.warnings:
            return f"fit for training, with {_number_of(warnings, 'warning')}"
        return "fit for training"

    def _most_frequent_partner(self, index: int) -> str:
        others = [(count, name) for name, count in zip(self.classes, self.cooccurrence[index], strict=True)]
        others.pop(index)
        count, name = max(others, key=lambda other: other[0], default=(0, ""))
        return f"{name} ({count:,})" if count else ""


def _number_of(items: Sequence[str], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"
