"""The images of a run with their content and tags, so that a run is resumed on the same data only."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tagseg._files import write_text
from tagseg.data.dataset import ImageDataset
from tagseg.data.images import ImageInfo

IMAGES_FILE = "images.jsonl"


class ListedImage(NamedTuple):
    """An image of a run: the digest of its file's content, and its tags."""

    content: str
    tags: tuple[str, ...]


ImageList = Mapping[str, ListedImage]  # by image ID


def list_images(data: ImageDataset, infos: Sequence[ImageInfo]) -> ImageList:
    """List the images of a dataset."""
    return {
        image_id: ListedImage(
            info.digest[:8].hex(),
            tuple(name for name, label in zip(data.classes, labels, strict=True) if label),
        )
        for image_id, info, labels in zip(data.image_ids, infos, data.labels.tolist(), strict=True)
    }


def digest(images: ImageList) -> str:
    """Hash of a list, the order included: it decides the batches."""
    return hashlib.blake2b(json.dumps(list(images.items())).encode(), digest_size=16).hexdigest()


def write_lists(run: Path, lists: Mapping[str, ImageList]) -> None:
    """Write the lists of a run, such as `train` and `validation`, with a line for each image."""
    lines = (
        json.dumps([split, name, *image]) + "\n" for split, images in lists.items() for name, image in images.items()
    )
    text = "".join(lines)
    write_text(run / IMAGES_FILE, text)


def read_lists(run: Path) -> dict[str, dict[str, ListedImage]]:
    """Read what `write_lists` wrote; empty if there is none, or if it is damaged."""
    lists: dict[str, dict[str, ListedImage]] = {}
    file = run / IMAGES_FILE
    try:
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            split, name, content, tags = json.loads(line)
            lists.setdefault(split, {})[name] = ListedImage(content, tuple(tags))
    except (ValueError, TypeError):
        return {}
    return lists


def list_differences(existing: ImageList, new: ImageList) -> Iterator[str]:
    """What changed from one list to another, in words, each with the number of images and the first."""
    both = [name for name in new if name in existing]
    changes = {
        "added": [name for name in new if name not in existing],
        "removed": [name for name in existing if name not in new],
        "with other tags": [name for name in both if new[name].tags != existing[name].tags],
        "with other content": [name for name in both if new[name].content != existing[name].content],
    }
    for change, names in changes.items():
        if names:
            yield f"{len(names)} image{'' if len(names) == 1 else 's'} {change}, the first {names[0]!r}"
    if not any(changes.values()):
        yield "the images are in another order"
