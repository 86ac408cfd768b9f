"""What `check` finds wrong with a dataset: problems, warnings and notes, from the facts of its report.

The numbers of images are rules of thumb for training from ImageNet weights.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from tagseg.data.label_names import names_of_no_class, several_labels, spellings

if TYPE_CHECKING:
    from tagseg.data.check_report import CheckReport

# Fewer images than these are a problem, a warning, a note.
CLASS_LEVELS = (5, 20, 100)
DATASET_LEVELS = (20, 100)

Level = Literal["problem", "warning", "note"]


class Finding(BaseModel):
    """One line of a report."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    level: Level
    """problem: training would fail or learn nothing; warning: its result may be worse than possible; note: to know."""
    kind: str
    """Name of the check, such as few-images; it stays the same where the message changes."""
    message: str
    """What was found and what to do, in one line."""


def find_problems(report: "CheckReport") -> tuple[Finding, ...]:
    """Run every check on a report; problems come first, then warnings and notes."""
    findings = [finding for check in _CHECKS for finding in check(report)]
    order: tuple[Level, ...] = ("problem", "warning", "note")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))


def _files(report: "CheckReport") -> Iterator[Finding]:
    if not report.image_count:
        yield _problem("no-images", "no image was found; name the folder or zip that holds the images")
    if report.missing:
        text = f"{_are(report.missing, 'listed image')} missing; add the files or remove the rows"
        yield _problem("missing-files", text)
    if report.unreadable:
        yield _problem("unreadable-files", f"{_are(report.unreadable, 'file')} unreadable; replace or remove them")
    if report.smaller_than_crop:
        text = (
            f"{_are(report.smaller_than_crop, 'image')} smaller than the crop of {report.crop} pixels and enlarged to "
            "it; use larger images or lower transforms.crop"
        )
        yield _warning("small-images", text)


def _number_of_images(report: "CheckReport") -> Iterator[Finding]:
    few, small = DATASET_LEVELS
    if 0 < report.image_count < small:
        count = f"{report.image_count} image{' is' if report.image_count == 1 else 's are'}"
        if report.image_count < few:
            yield _problem("few-images", f"{count} too few to learn from; add images, {few} at the least")
        else:
            yield _warning("few-images", f"{count} few; add images, masks get better with some hundred")


def _classes(report: "CheckReport") -> Iterator[Finding]:
    counts = dict(zip(report.classes, report.counts, strict=True))
    if not report.image_count:
        return
    if not any(counts.values()):
        yield _problem("no-tags", "no image has a tag, so there is nothing to learn; add tags")
        return
    if absent := [name for name, count in counts.items() if count == 0]:
        text = f"{_are(absent, 'class', 'classes')} in no image and cannot be learned; add images or remove the class"
        yield _problem("absent-class", text)
    if constant := [name for name, count in counts.items() if count == report.image_count]:
        text = (
            f"{_are(constant, 'class', 'classes')} in every image: without images that lack it, its masks may cover "
            "anything; add images without it, which need no tags, or remove the class"
        )
        yield _problem("constant-class", text)
    yield from _few_images_of_class({name: count for name, count in counts.items() if count})
    common = {name: count for name, count in counts.items() if report.image_count / 2 < count < report.image_count}
    yield from _few_images_without_class({name: report.image_count - count for name, count in common.items()})


def _few_images_of_class(counts: dict[str, int]) -> Iterator[Finding]:
    few, small, good = CLASS_LEVELS
    if names := _between(counts, 0, few):
        text = f"{_have(names)} fewer than {few} images, too few to learn from; add images or remove the class"
        yield _problem("few-images-of-class", text)
    if names := _between(counts, few, small):
        text = f"{_have(names)} fewer than {small} images; add images, or masks will be poor"
        yield _warning("few-images-of-class", text)
    if names := _between(counts, small, good):
        yield _note("few-images-of-class", f"{_have(names)} fewer than {good} images; more make masks better")


def _few_images_without_class(counts: dict[str, int]) -> Iterator[Finding]:
    few, small, _ = CLASS_LEVELS
    advice = "add images without it, which need no tags, or masks may cover anything"
    if names := _between(counts, 0, few):
        yield _problem("few-images-without-class", f"{_are_absent(names)} fewer than {few} images; {advice}")
    if names := _between(counts, few, small):
        yield _warning("few-images-without-class", f"{_are_absent(names)} fewer than {small} images; {advice}")


def _cooccurrence(report: "CheckReport") -> Iterator[Finding]:
    varying = [i for i, count in enumerate(report.counts) if 0 < count < report.image_count]
    together: dict[tuple[int, ...], None] = {}
    inside = []
    for i in varying:
        with_all = [j for j in varying if report.cooccurrence[i][j] == report.counts[i]]
        same = tuple(j for j in with_all if report.counts[j] == report.counts[i])
        if len(same) > 1:
            together[same] = None
        if larger := [j for j in with_all if report.counts[j] > report.counts[i]]:
            inside.append(f"{report.classes[i]} with {report.classes[larger[0]]}")
    if together:
        groups = [" and ".join(report.classes[j] for j in group) for group in together]
        text = (
            f"{_are(groups, 'group of classes', 'groups of classes')} always together: nothing tells their masks "
            "apart; add images that have only one of them, or merge them into one class"
        )
        yield _problem("always-together", text)
    if inside:
        text = (
            f"{_are(inside, 'class', 'classes')} only in images that also have another class: the mask may cover "
            "that one too; add images without it"
        )
        yield _warning("never-alone", text)


def _validation(report: "CheckReport") -> Iterator[Finding]:
    if not report.validation_image_count:
        if report.image_count:
            text = (
                "no image can be held out for validation, because each is the only one of some class; add images, or "
                "name validation images"
            )
            yield _problem("no-validation", text)
        return
    names = [
        name
        for name, count, held_out in zip(report.classes, report.counts, report.validation_counts, strict=True)
        if 0 < count < report.image_count and held_out in (0, report.validation_image_count)
    ]
    if names:
        text = (
            f"{_are(names, 'class', 'classes')} in none or all of the {report.validation_image_count:,} validation "
            "images: the threshold cannot be tuned; add images, or name more validation images"
        )
        yield _warning("class-not-validated", text)


def _labels(report: "CheckReport") -> Iterator[Finding]:
    if groups := [" = ".join(group) for group in spellings(report.classes)]:
        yield _warning(
            "spellings", f"{_are(groups, 'group of names', 'groups of names')} perhaps one class; use one name"
        )
    if names := several_labels(report.classes):
        text = f"{_are(names, 'class', 'classes')} perhaps several labels; use one separator everywhere"
        yield _warning("several-labels", text)
    if names := names_of_no_class(report.classes):
        text = (
            f"{_are(names, 'class', 'classes')} named like the absence of one, and would get masks of its own; leave "
            "the tags of such images empty, or choose the other classes only"
        )
        yield _warning("name-of-no-class", text)
    if groups := [" = ".join(group) for group in report.repeated_rows]:
        text = f"{_are(groups, 'image')} in several rows with different tags, which are combined"
        if report.one_tag_per_row:
            yield _note("repeated-rows", text)
        else:
            yield _warning("repeated-rows", f"{text}; keep one row for each image if this is a mistake")
    if report.unlabeled and any(report.counts):
        text = f"{_are(report.unlabeled, 'image')} without tags: negatives, which show none of the classes"
        yield _note("negatives", text)


def _copies(report: "CheckReport") -> Iterator[Finding]:
    files = ("group of equal files", "groups of equal files")
    if groups := [" = ".join(group) for group in report.duplicates]:
        yield _warning("duplicates", f"{_are(groups, *files)} counted several times in training; keep one of each")
    if groups := [" = ".join(group) for group in report.contradictions]:
        yield _warning("contradictions", f"{_are(groups, *files)} tagged differently; correct the tags")
    if pairs := [" = ".join(pair) for pair in report.near_duplicates]:
        effect = "they count several times; keep one"
        if report.validation is None:
            effect = "where only one is held out, its score is too high; keep one, or name validation images"
        text = f"{_are(pairs, 'image')} almost equal to another: {effect}"
        yield _warning("near-duplicates", text)
    if pairs := [" = ".join(pair) for pair in report.validation_duplicates]:
        text = f"{_are(pairs, 'image')} also among the validation images: scores are too high; remove one of them"
        yield _warning("validation-duplicates", text)
    if pairs := [" = ".join(pair) for pair in report.validation_near_duplicates]:
        text = f"{_are(pairs, 'image')} almost equal to a validation image: scores are too high; remove one of them"
        yield _warning("validation-near-duplicates", text)


_CHECKS: tuple[Callable[["CheckReport"], Iterator[Finding]], ...] = (
    _files,
    _number_of_images,
    _classes,
    _cooccurrence,
    _validation,
    _labels,
    _copies,
)


def _problem(kind: str, message: str) -> Finding:
    return Finding(level="problem", kind=kind, message=message)


def _warning(kind: str, message: str) -> Finding:
    return Finding(level="warning", kind=kind, message=message)


def _note(kind: str, message: str) -> Finding:
    return Finding(level="note", kind=kind, message=message)


def _between(counts: dict[str, int], low: int, high: int) -> list[str]:
    """Names whose count is at least `low` and below `high`, with it, fewest first."""
    return [
        f"{name}: {count}" for name, count in sorted(counts.items(), key=lambda item: item[1]) if low <= count < high
    ]


def _are(items: Sequence[str], noun: str, plural: str = "") -> str:
    """Subject and verb such as "3 files (a.jpg, b.jpg, ...) are"."""
    return f"{_subject(items, noun, plural)} {'is' if len(items) == 1 else 'are'}"


def _have(items: Sequence[str]) -> str:
    return f"{_subject(items, 'class', 'classes')} {'has' if len(items) == 1 else 'have'}"


def _are_absent(items: Sequence[str]) -> str:
    return f"{_are(items, 'class', 'classes')} absent from"


def _subject(items: Sequence[str], noun: str, plural: str = "") -> str:
    """Number and noun, with the first two items: "3 files (a.jpg, b.jpg, ...)"."""
    examples = ", ".join(items[:2]) + (", ..." if len(items) > 2 else "")
    return f"{len(items):,} {noun if len(items) == 1 else plural or noun + 's'} ({examples})"
