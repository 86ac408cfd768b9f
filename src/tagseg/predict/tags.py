"""Known tags of the images to predict: from a table, a mapping, or a list."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from tagseg.data.files import expand_home
from tagseg.data.images import strip_image_suffix
from tagseg.data.tables import TABLE_SUFFIXES, read_table
from tagseg.data.urls import is_url
from tagseg.errors import DataError, unknown_name
from tagseg.predict.sources import ImageSource
from tagseg.predict.video import VideoSource

Tags = tuple[str, ...]  # in the order of the model's classes
TagsInput = str | Path | Mapping[str, Sequence[str]] | Sequence[Sequence[str]]


def tags_of_images(tags: TagsInput, sources: Sequence[ImageSource | VideoSource], classes: Sequence[str]) -> list[Tags]:
    """Tags of each image; all frames of a video have those of the video.

    Args:
        tags: A table as for training, a mapping from an image's path or name to its tags, or the tags of each image in
            the order of the images. In a table and a mapping leading folders and the suffix may be left out.
        sources: The images.
        classes: The model's classes.

    Raises:
        DataError: An image has no tags, an entry fits two images, or a tag is no class.
    """
    if isinstance(tags, str | Path):
        path = expand_home(tags)
        if path.suffix.lower() not in TABLE_SUFFIXES:
            raise DataError(f"{tags}: is not a table of tags", f"name a file ending in {', '.join(TABLE_SUFFIXES)}")
        records = read_table(path, classes=classes, find_images=False).records
        entries = {record.image: (sort_tags(sorted(record.labels), classes), record.location) for record in records}
        return _match(entries, sources, str(tags), "add their rows, or predict them in a call of their own")
    if isinstance(tags, Mapping):
        entries = {name: (sort_tags(labels, classes), f"tags of {name!r}") for name, labels in tags.items()}
        return _match(entries, sources, "tags", "add their tags, or predict them in a call of their own")
    if len(tags) != len(sources):
        raise DataError(f"tags are given for {len(tags)} images, but there are {len(sources)}", "give tags for each")
    return [sort_tags(labels, classes) for labels in tags]


def sort_tags(tags: Sequence[str], classes: Sequence[str]) -> Tags:
    """Tags in the order of the classes, each once."""
    tags = [tags] if isinstance(tags, str) else tags
    for tag in tags:
        if tag not in classes:
            raise unknown_name("tag", tag, classes)
    return tuple(name for name in classes if name in tags)


def _match(
    entries: Mapping[str, tuple[Tags, str]], sources: Sequence[ImageSource | VideoSource], origin: str, advice: str
) -> list[Tags]:
    """Find the entry of each image, and refuse entries that fit two images."""
    by_path = {_normalize(name): entry for name, entry in entries.items()}
    matched: dict[str, str] = {}  # location of an entry -> path of its image
    matched_tags: list[Tags] = []
    missing: list[str] = []
    for source in sources:
        path = source.path or source.name
        entry = next((by_path[spelling] for spelling in _spellings(source) if spelling in by_path), None)
        if entry is None:
            missing.append(path)
            continue
        labels, location = entry
        if matched.setdefault(location, path) != path:
            raise DataError(f"{location}: could be {matched[location]} or {path}", "write more of its path there")
        matched_tags.append(labels)
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"{origin}: has no tags for {missing[0]}{others}", advice)
    return matched_tags


def _spellings(source: ImageSource | VideoSource) -> Iterator[str]:
    """Names by which an entry may call an image: its path and every end of it, longest first, then without suffix."""
    if source.path is None or source.path == "-":
        yield source.name
        return
    if is_url(source.path):
        yield source.path
        path = PurePosixPath(source.path.partition("?")[0].partition("://")[2])
    else:
        # A member of a zip is found by its path in the zip too.
        path = PurePosixPath(Path(os.path.abspath(source.path)).as_posix().replace(".zip:", ".zip/"))  # noqa: PTH100
    for whole in (path, strip_image_suffix(path), PurePosixPath(source.name)):
        yield from ("/".join(whole.parts[start:]) for start in range(len(whole.parts)))
        yield str(whole)


def _normalize(name: str) -> str:
    return name if is_url(name) else PurePosixPath(name.replace("\\", "/")).as_posix()
