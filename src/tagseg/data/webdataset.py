"""WebDataset shards: tars in which the files of a sample share their name, as in 0001.jpg and 0001.json.

Labels are a key of the .json (`labels`, `label`, `tags` and so on), the name or number in the .cls, or the text of the
.txt. Images are read at their position in the tar.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tagseg._json import parse_json
from tagseg.data.files import TarMember, tar_members
from tagseg.data.images import IMAGE_SUFFIXES
from tagseg.data.labels import LABEL_COLUMNS, Cell, choose_separator, parse_labels, split_labels
from tagseg.data.limits import require_size
from tagseg.data.records import Record, Records
from tagseg.errors import DataError

_LABEL_SUFFIXES = ("json", "cls", "txt")  # by preference
_MAX_LABEL_BYTES = 2**24
_CORRECT = "correct it or remove it"


@dataclass
class _Sample:
    """Files of a sample: its image, and those with labels by their suffix."""

    image: TarMember | None = None
    labels: dict[str, TarMember] = field(default_factory=dict)


def read_webdataset(
    files: Sequence[Path], *, classes: Sequence[str] | None = None, separator: str | None = None
) -> Records:
    """Read the labels of shards; samples without an image are left out.

    Args:
        files: Shards of one split.
        classes: Class names in their order; None means all labels in alphabetical order.
        separator: Separator of labels in a text; None means that the samples show it, see `choose_separator`.
    """
    rows = [(sample.image, _labels(sample)) for file in files for sample in _samples(file) if sample.image]
    if not rows:
        raise DataError(f"{files[0]}: holds no images", "pack samples such as 0001.jpg and 0001.json")
    if separator is None:
        separator = choose_separator((labels for _, labels in rows), files[0], classes)
    names = [str(image.member) for image, _ in rows]
    if len(set(names)) < len(names):  # shards may number their samples separately
        names = [f"{image.path.stem}/{image.member}" for image, _ in rows]
    records = [
        Record(name, split_labels(labels, separator), image, str(image))
        for name, (image, labels) in zip(names, rows, strict=True)
    ]
    return Records.merge(records, classes)


def _samples(file: Path) -> list[_Sample]:
    samples: dict[str, _Sample] = {}
    for member in tar_members(file):
        path = PurePosixPath(str(member.member))
        stem, _, suffix = path.name.partition(".")
        if not stem:  # hidden files
            continue
        sample = samples.setdefault(str(path.with_name(stem)), _Sample())
        if f".{suffix.lower()}" in IMAGE_SUFFIXES:
            sample.image = sample.image or member
        elif suffix.lower() in _LABEL_SUFFIXES:
            sample.labels[suffix.lower()] = member
    return list(samples.values())


def _labels(sample: _Sample) -> Cell:
    for suffix in _LABEL_SUFFIXES:
        if (member := sample.labels.get(suffix)) is None:
            continue
        require_size(member, member.size(), _MAX_LABEL_BYTES)
        try:
            text = member.read().decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{member}: cannot be read as {suffix} ({error})", _CORRECT) from error
        if suffix != "json":
            return text.strip()
        value = _label_value(parse_json(text, member, _CORRECT))
        if value is not None:
            return parse_labels(value, member)
    raise DataError(
        f"{sample.image}: has no labels",
        'add a .json such as {{"labels": []}}, a .cls or a .txt beside it; labels may be empty',
    )


def _label_value(content: Any) -> Any:
    """Labels in a JSON: those under a known key, or a list of labels itself; None if there are none."""
    if isinstance(content, dict):
        key = next((key for key in LABEL_COLUMNS if key in content), None)
        return None if key is None else [] if content[key] is None else content[key]
    return content if isinstance(content, list) else None
