"""A run's folder: the resolved settings, the versions, the class names; and the refusal to mix two runs in one."""

import json
import platform
import shutil
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tagseg._version import __version__
from tagseg.models import Network
from tagseg.training.recipe import Recipe

CONFIG = "config.json"
HELD_OUT = "validation.txt"
_PACKAGES = ("torch", "torchvision", "timm", "accelerate", "numpy", "pillow")


def prepare_folder(out: Path, recipe: Recipe, classes: Sequence[str], data: dict[str, Any]) -> None:
    """Make the run's folder, or check that it is of the same run.

    Args:
        out: the folder.
        recipe: the resolved settings.
        classes: the class names.
        data: what is learnt from, in words and numbers.
    """
    config = {"recipe": recipe.model_dump(mode="json"), "classes": list(classes), "data": data}
    config = json.loads(json.dumps(config))  # as it reads back: tuples become lists
    path = out / CONFIG
    if path.is_file():
        known = read_config(out)
        if differences := list(_differences({key: known.get(key) for key in config}, config)):
            raise ValueError(
                f"{out} holds a run of another configuration ({'; '.join(differences[:3])}); choose another --out, or "
                "delete that folder"
            )
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and is not a run's folder; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    versions = {"tagseg": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in _PACKAGES}
    path.write_text(json.dumps({**config, "versions": versions}, indent=2) + "\n")


def read_config(run: Path) -> dict[str, Any]:
    """What `prepare_folder` wrote."""
    path = run / CONFIG
    if not path.is_file():
        raise ValueError(
            f"{run} is not a run's folder: it has no {CONFIG}; give the folder named by tagseg train --out"
        )
    return dict(json.loads(path.read_text()))


def write_held_out(run: Path, names: Sequence[str]) -> None:
    """Note which images are held out."""
    (run / HELD_OUT).write_text("".join(f"{name}\n" for name in names))


def read_held_out(run: Path) -> list[str]:
    """The images that `write_held_out` noted."""
    return (run / HELD_OUT).read_text().splitlines()


def check_space(out: Path, network: Network) -> None:
    """Refuse to start where the checkpoints will not fit: the state, its successor and the model."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())
    there = sum(file.stat().st_size for file in out.glob("*.safetensors"))  # of a run that goes on
    needed, free = max(2 * weights, 5 * weights - there), shutil.disk_usage(out).free
    if free < needed:
        raise ValueError(
            f"{out} has {free / 2**20:.0f} MiB free, and this network's checkpoints need {needed / 2**20:.0f} MiB; "
            "free some space or choose another --out"
        )


def _differences(known: Any, wanted: Any, where: str = "") -> Any:
    """The fields that two configurations do not share, as `field: old, not new`."""
    if isinstance(known, dict) and isinstance(wanted, dict):
        for key in {**known, **wanted}:
            yield from _differences(known.get(key), wanted.get(key), f"{where}.{key}".lstrip("."))
    elif known != wanted:
        yield f"{where.removeprefix('recipe.')} is {_short(known)} there, {_short(wanted)} here"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
