"""Options that several commands have, and checks of them before torch is imported."""

import os
from collections.abc import Iterable
from glob import has_magic
from pathlib import Path
from typing import Annotated, Literal

import typer

import tagseg
from tagseg._hub import DEFAULT_MODEL, MODEL_FILE, find_on_hub, is_hub_name
from tagseg.errors import ConfigError, DataError, WeightsError

Data = Annotated[str, typer.Argument(help="Table, class folders, COCO, VOC, Parquet, tars or shapes.")]
Images = Annotated[list[str] | None, typer.Option(help="Folder, zip or tar with the images; may be repeated.")]
Split = Annotated[str | None, typer.Option(help="Split of the data, if it has several.")]
Masks = Annotated[list[str] | None, typer.Option(help="Folder or zip with ground-truth masks, ID.png.")]
Separator = Annotated[str | None, typer.Option(help="Separator of a row's labels; found by default.")]
Classes = Annotated[str | None, typer.Option(help="Keep, rename or merge classes: vehicle=car|bus,dog.")]
ValClasses = Annotated[str | None, typer.Option(help="Classes of the validation data; as --classes by default.")]
Sbd = Annotated[str | None, typer.Option(help="SBD's benchmark_RELEASE, if not beside VOC.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Number of images to use, evenly spaced; all by default.")]
Model = Annotated[
    str, typer.Option("--model", "-m", help="Run folder, model file, organization/name on the hub, or default.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Output folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Images of one size that run together.")]
Tta = Annotated[bool, typer.Option("--tta", help="Test-time augmentation: multi-scale and flip.")]
Crf = Annotated[bool, typer.Option("--crf", help="Refine masks by a dense CRF.")]
Threshold = Annotated[
    float | None, typer.Option(help="Class threshold in place of the tuned ones; the paper's is 0.1.")
]
Size = Annotated[
    str | None, typer.Option(help="Longest side for the network in pixels, or native; the model's by default.")
]
Optimize = Annotated[bool, typer.Option("--optimize/--no-optimize", help="Use the fast paths, or plain torch.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip images that cannot be read.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Change a setting: section.field=value.")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Predict on a Ray cluster: auto, local or HOST:PORT.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Workers on the cluster; one per GPU or core by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def data_source(
    data: str,
    images: list[str] | None = None,
    split: str | None = None,
    masks: list[str] | None = None,
    separator: str | None = None,
    sbd: str | None = None,
    limit: int | None = None,
    classes: str | None = None,
) -> "tagseg.DataSource":
    """Data source of a command's options, whose paths exist."""
    if not _is_generated(data):
        require_paths([data], "name a table, a COCO JSON, Parquet or tar file, a folder, or 'shapes'")
    require_paths([*(images or ()), *(masks or ()), *([sbd] if sbd else ())], "name a folder or a zip")
    return tagseg.DataSource(data, tuple(images or ()), split, tuple(masks or ()), separator, sbd, limit, classes)


def validation_source(
    data: str | None,
    images: list[str] | None,
    split: str | None,
    masks: list[str] | None,
    classes: str | None,
    separator: str | None,
    sbd: str | None,
    *,
    default: tuple[str, list[str] | None, list[str] | None, str | None],
) -> "tagseg.DataSource | None":
    """Source of the validation options; with a split alone it is the training data's.

    Args:
        default: Path, images, masks and classes of the training data.
    """
    if data is None and split is not None:
        data, images, masks = default[0], images or default[1], masks or default[2]
    if data is None and (images or masks or classes):
        raise DataError("--val-images, --val-masks and --val-classes belong to validation data", "name it with {val}")
    return data_source(data, images, split, masks, separator, sbd, classes=classes or default[3]) if data else None


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """Part of the images of an option, as in 2/4."""
    if text is None:
        return None
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError(
            f"--shard {text}: is not a part of the images", "write for example --shard 1/4 to --shard 4/4"
        )
    return int(number), int(count)


def parse_size(text: str | None) -> int | Literal["native"] | None:
    """Working size of an option."""
    if text is None:
        return None
    if text == "native":
        return "native"
    if not text.isdecimal():
        raise ConfigError(f"--size {text}: is neither native nor a number of pixels", "write for example --size 500")
    return int(text)


def require_paths(paths: Iterable[str] | None, advice: str = "check the path") -> None:
    """Refuse paths that do not exist before torch is imported; patterns and members of zips are checked later."""
    for path in paths or ():
        location = Path(os.path.expanduser(path))  # noqa: PTH111  keeps ~name if there is no such user
        container = Path(str(location).rpartition(":")[0])
        if not (location.exists() or has_magic(path) or (container.name and container.is_file())):
            raise DataError(f"{path}: does not exist", advice)


def require_images(images: Iterable[str]) -> None:
    """Refuse images that do not exist, and URLs that cannot be downloaded, before torch is imported."""
    from tagseg.data.urls import check_url, is_url

    for url in filter(is_url, images):
        check_url(url)
    paths = [image for image in images if image != "-" and not is_url(image)]
    require_paths(paths, "name an image, a folder, a zip, a URL or a pattern such as photos/*.jpg")


def require_model(model: str, *, hub: bool = True) -> None:
    """Refuse a model that does not exist, neither here nor on the hub, before torch is imported."""
    if model == DEFAULT_MODEL or Path(os.path.expanduser(model)).exists():  # noqa: PTH111
        return
    if not (hub and is_hub_name(model)):
        raise WeightsError(f"{model}: does not exist", f"name a run folder, a model file, or {DEFAULT_MODEL}")
    find_on_hub(model, MODEL_FILE)


def require_ray(address: str | None) -> None:
    """Refuse a cluster that does not answer before torch is imported."""
    if address is not None:
        from tagseg._ray import check_ray

        check_ray(address)


def require_recipe(recipe: str, changes: Iterable[str] | None, *, downloads: bool = False) -> None:
    """Refuse a recipe or a setting that is wrong, and missing weights, before torch is imported.

    Args:
        recipe: Name or file of a recipe.
        changes: Settings to change in it.
        downloads: Whether weights will be downloaded.
    """
    from tagseg.training.recipe import Recipe

    pretrained = Recipe.load(recipe, list(changes or ())).model.pretrained
    if isinstance(pretrained, str) and "/" in pretrained:
        require_model(pretrained, hub=False)
    elif pretrained is True and downloads:
        from tagseg._hub import ask_early

        ask_early()


def _is_generated(data: str) -> bool:
    return data.partition(":")[0] == "shapes"
