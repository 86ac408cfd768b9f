"""The folder of a run: its resolved settings, package versions, class names and images."""

import hashlib
import json
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import TypedDict  # that of pydantic before Python 3.12

from tagseg._files import has_no_files, hold_folder, remove_part_files, write_text
from tagseg._hub import CHECKPOINT_FILE, MODEL_FILE
from tagseg._json import as_json, differences, parse_json, validated
from tagseg._version import __version__
from tagseg.data.dataset import ImageDataset
from tagseg.data.files import read_text
from tagseg.data.images import ImageInfo
from tagseg.data.masks import MaskDataset
from tagseg.data.source import DataSource
from tagseg.errors import ConfigError
from tagseg.models import Network
from tagseg.training.recipe import Recipe

CONFIG_FILE = "config.json"
VALIDATION_FILE = "validation.txt"
IMAGES_FILE = "images.jsonl"  # with their content and tags, so that a run is resumed on the same data only
METRICS_FILE = "metrics.jsonl"
FEATURES_PREFIX = ".features-"  # folders of the features of a frozen backbone, while a run lasts
_DAMAGED = "name the folder of another run: this file is not the configuration of one"
_PACKAGES = ("torch", "torchvision", "timm", "accelerate", "numpy", "pillow")


class _Config(TypedDict):
    recipe: dict[str, dict[str, Any]]
    classes: list[str]
    data: dict[str, Any]


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


@contextmanager
def hold_run(out: Path) -> Iterator[None]:
    """Hold the folder of a run, and remove what a killed process left there; of several processes the main one does."""
    with hold_folder(out):
        remove_part_files(out, (CONFIG_FILE, IMAGES_FILE, VALIDATION_FILE, METRICS_FILE, CHECKPOINT_FILE, MODEL_FILE))
        for features in out.glob(f"{FEATURES_PREFIX}*") if (out / CONFIG_FILE).is_file() else ():
            shutil.rmtree(features, ignore_errors=True)
        yield


def prepare_folder(
    out: Path, recipe: Recipe, classes: Sequence[str], data: Mapping[str, Any], images: Mapping[str, ImageList]
) -> None:
    """Make the folder of a run, or check that it belongs to the same run.

    Args:
        out: Folder of the run.
        recipe: Settings of the run.
        classes: Class names.
        data: Description of the training and validation data.
        images: Images of the data; those of `train` hold the validation images if none were given.
    """
    digests = {split: _digest(listed) for split, listed in images.items()}
    config = as_json({"recipe": recipe.to_dict(), "classes": list(classes), "data": {**data, "digests": digests}})
    path = out / CONFIG_FILE
    if path.is_file():
        existing = read_config(out)
        if found := [
            *_image_differences(out, existing["data"].get("digests"), images),
            *differences({key: existing.get(key) for key in config}, config),
        ]:
            raise ConfigError(
                f"{out} holds a run of another configuration ({'; '.join(found[:3])})",
                "choose another folder with {out}, or delete that one",
            )
        if not (out / IMAGES_FILE).is_file():  # the process was killed before it was written
            _write_lists(out, images)
        return
    if out.exists() and not (out.is_dir() and has_no_files(out)):
        raise ConfigError(f"{out} exists and is not a run folder", "choose another folder with {out}")
    out.mkdir(parents=True, exist_ok=True)
    versions = {"tagseg": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in _PACKAGES}
    text = json.dumps({**config, "versions": versions}, indent=2) + "\n"
    write_text(path, text)
    _write_lists(out, images)


def read_config(run: Path) -> dict[str, Any]:
    """Read the configuration that `prepare_folder` wrote."""
    path = run / CONFIG_FILE
    if not path.is_file():
        raise ConfigError(
            f"{run} is not a run folder: it has no {CONFIG_FILE}", "name the folder that training wrote to"
        )
    config: dict[str, Any] = parse_json(read_text(path), path, _DAMAGED, error=ConfigError)
    validated(_Config, config, path, _DAMAGED, error=ConfigError)
    return config


def write_held_out(run: Path, names: Sequence[str]) -> None:
    """Write the names of the validation images."""
    text = "".join(f"{name}\n" for name in names)
    write_text(run / VALIDATION_FILE, text)


def read_held_out(run: Path) -> list[str]:
    """Read the names of the validation images."""
    path = run / VALIDATION_FILE
    if not path.is_file():
        raise ConfigError(f"{run} has no {VALIDATION_FILE}, which names the validation images of a run")
    return read_text(path).split("\n")[:-1]


def validation_data(run: str | Path) -> tuple[ImageDataset, MaskDataset | None]:
    """Validation images of a run, and their ground-truth masks if there are any."""
    config = read_config(Path(run))
    source = DataSource.from_description(config["data"].get("validation"))
    data = source.open(config["classes"], skip_missing=True)
    positions = {image_id: index for index, image_id in enumerate(data.image_ids)}
    indices = [positions[image_id] for image_id in read_held_out(Path(run)) if image_id in positions]
    return data.subset(indices), source.masks_if_any(config["classes"])


def training_data(run: str | Path) -> ImageDataset:
    """Training images of a run."""
    config = read_config(Path(run))
    data = config["data"]
    source = DataSource.from_description(data.get("train"))
    images = source.open(config["classes"], skip_missing=True)
    held_out: set[str] = set()
    if source == DataSource.from_description(data.get("validation")):
        held_out.update(read_held_out(Path(run)))
    masks = (
        source.masks_if_any(config["classes"])
        if config["recipe"].get("model", {}).get("method") == "supervised"
        else None
    )
    return images.subset(
        [
            index
            for index, image_id in enumerate(images.image_ids)
            if image_id not in held_out and (masks is None or image_id in masks)
        ]
    )


def check_disk_space(out: Path, network: Network) -> None:
    """Check that the checkpoint, its successor and the model fit on the disk."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())
    existing = sum(file.stat().st_size for file in out.glob("*.safetensors"))  # of a resumed run
    needed, free = max(2 * weights, 5 * weights - existing), shutil.disk_usage(out).free
    if free < needed:
        raise ConfigError(
            f"{out} has {free / 2**20:.0f} MiB free, and the checkpoints of this network need {needed / 2**20:.0f} MiB",
            "free some space or choose another folder with {out}",
        )


def _digest(images: ImageList) -> str:
    """Hash of a list, the order included: it decides the batches."""
    return hashlib.blake2b(json.dumps(list(images.items())).encode(), digest_size=16).hexdigest()


def _write_lists(run: Path, lists: Mapping[str, ImageList]) -> None:
    """Write the lists of a run, such as `train` and `validation`, with a line for each image."""
    lines = (
        json.dumps([split, name, *image]) + "\n" for split, images in lists.items() for name, image in images.items()
    )
    write_text(run / IMAGES_FILE, "".join(lines))


def _read_lists(run: Path) -> dict[str, dict[str, ListedImage]]:
    """Read what `_write_lists` wrote; empty if there is none, or if it is damaged."""
    lists: dict[str, dict[str, ListedImage]] = {}
    file = run / IMAGES_FILE
    try:
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            split, name, content, tags = json.loads(line)
            lists.setdefault(split, {})[name] = ListedImage(content, tuple(tags))
    except (ValueError, TypeError):
        return {}
    return lists


def _list_differences(existing: ImageList, new: ImageList) -> Iterator[str]:
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


def _image_differences(out: Path, digests: Any, images: Mapping[str, ImageList]) -> Iterator[str]:
    """Differences of the images of a run from those of its folder, in words."""
    existing = _read_lists(out)
    for split, listed in images.items():
        if split in existing and isinstance(digests, dict) and digests.get(split) != _digest(listed):
            yield from (f"{split}: {change}" for change in _list_differences(existing[split], listed))
