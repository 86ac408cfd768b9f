"""COCO's instances JSON: images and image labels."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tagseg.data._table_lines import read_text
from tagseg.data.files import Place
from tagseg.data.listing import Listing, Row, make_listing
from tagseg.errors import DataError


def find_coco(root: Path, split: str | None) -> Path | None:
    """The instances file of a COCO folder (annotations/instances_SPLIT.json), or None if this is not COCO."""
    files = sorted((root / "annotations").glob("instances_*.json"))
    splits = [file.stem.removeprefix("instances_") for file in files]
    if not files:
        return None
    if split not in splits:
        raise DataError(f"{root}: holds COCO's splits {', '.join(splits)}; name one of them with split=")
    return files[splits.index(split)]


def list_coco(path: Path, *, images: Sequence[Path] = (), classes: Sequence[str] | None = None) -> Listing:
    """List the images of an instances file with the classes of their annotations; an image may have none.

    Args:
        path: the JSON file.
        images: folders and zips that hold the images; if not given, the JSON's folder and, for
            annotations/instances_SPLIT.json, the folder SPLIT beside annotations.
        classes: the classes in their order; all categories by their number if not given.
    """
    content = read_instances(path)
    names = category_names(content)
    labels: dict[int, set[str]] = defaultdict(set)
    for annotation in content["annotations"]:
        labels[annotation["image_id"]].add(names[annotation["category_id"]])
    places = [Place(place) for place in images or _places_beside(path)]
    rows = []
    for image in content["images"]:
        name = image["file_name"]
        file = next((found for place in places if (found := place.find(name))), None)
        rows.append(Row(name, frozenset(labels[image["id"]]), file, f"{path} (image {image['id']})"))
    return make_listing(str(path), rows, list(names.values()) if classes is None else classes)


def read_instances(path: Path) -> dict[str, Any]:
    """The file's content, with every reference in it checked."""
    try:
        content: dict[str, Any] = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: is not valid JSON ({error}); download it again") from error
    lacking = [
        key for key in ("images", "annotations", "categories") if not isinstance(content, dict) or key not in content
    ]
    if lacking:
        raise DataError(f"{path}: has no {lacking[0]!r}; name a COCO instances file")
    for image in content["images"]:
        for key in ("id", "file_name", "width", "height"):
            if key not in image:
                raise DataError(f"{path}: image {image.get('id')} has no {key!r}; add it or remove the image")
    images = {image["id"] for image in content["images"]}
    categories = {category["id"] for category in content["categories"]}
    for annotation in content["annotations"]:
        for key, known in (("image_id", images), ("category_id", categories)):
            if annotation.get(key) not in known:
                raise DataError(
                    f"{path}: annotation {annotation.get('id')} has the {key} {annotation.get(key)}, "
                    "which the file does not describe; correct or remove it"
                )
    return content


def category_names(content: dict[str, Any]) -> dict[int, str]:
    """Category number -> name, by rising number; the numbers have gaps."""
    return {category["id"]: category["name"] for category in sorted(content["categories"], key=lambda c: int(c["id"]))}


def _places_beside(path: Path) -> list[Path]:
    images = path.parent.parent / path.stem.removeprefix("instances_")
    return [images, path.parent] if images.is_dir() else [path.parent]
