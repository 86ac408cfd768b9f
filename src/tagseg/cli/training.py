"""Commands that train: check, train, train-masks, pseudo-labels, recipes."""

from pathlib import Path
from typing import Annotated, Any

import typer

import tagseg
from tagseg._hub import DEFAULT_MODEL
from tagseg.cli._app import app
from tagseg.cli.options import (
    BatchSize,
    Classes,
    Data,
    Device,
    Images,
    Json,
    Limit,
    Masks,
    Model,
    Optimize,
    Ray,
    Sbd,
    Separator,
    Set,
    Size,
    SkipBad,
    Split,
    ValClasses,
    Workers,
    data_source,
    parse_size,
    require_model,
    require_ray,
    require_recipe,
    validation_source,
)

RunFolder = Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command resumes a run.")]
RecipeName = Annotated[str, typer.Option(help="Recipe name (see `tagseg recipes`) or TOML file.")]
Validation = Annotated[str | None, typer.Option(help="Validation data; a fraction of the data by default.")]
TrainingDevice = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DataWorkers = Annotated[int | None, typer.Option(min=0, help="Number of data loading workers.")]
CheckpointSteps = Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")]


@app.command(epilog="Example: `tagseg check photos.csv --images photos/`")
def check(
    data: Data,
    images: Images = None,
    split: Split = None,
    separator: Separator = None,
    sbd: Sbd = None,
    classes: Classes = None,
    val: Validation = None,
    val_images: Images = None,
    val_split: Split = None,
    val_classes: ValClasses = None,
    recipe: Annotated[str, typer.Option(help="Recipe to train with (see `tagseg recipes`) or TOML file.")] = "default",
    changes: Set = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    json: Json = False,
) -> None:
    """Validate a dataset before training.

    Exit status: 0 if it is fit for training, warnings or not; 1 if not, or if it cannot be opened; 2 for wrong options.
    """
    source = data_source(data, images, split, None, separator, sbd, classes=classes)
    val_source = validation_source(
        val, val_images, val_split, None, val_classes, separator, sbd, default=(data, images, None, classes)
    )
    require_recipe(recipe, changes)
    report = tagseg.check(
        source, recipe=tagseg.Recipe.load(recipe).with_assignments(changes or ()), val=val_source, progress=True
    )
    if json:
        print(report.to_json())
    else:
        report.print()
    if report.problems or (strict and report.warnings):
        raise typer.Exit(1)


@app.command(epilog="Example: `tagseg train photos.csv --images photos/ -o runs/photos`")
def train(
    data: Data,
    out: RunFolder,
    recipe: RecipeName = "default",
    changes: Set = None,
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    separator: Separator = None,
    sbd: Sbd = None,
    limit: Limit = None,
    classes: Classes = None,
    val: Validation = None,
    val_images: Images = None,
    val_split: Split = None,
    val_masks: Masks = None,
    val_classes: ValClasses = None,
    skip_bad: SkipBad = False,
    device: TrainingDevice = "auto",
    workers: DataWorkers = None,
    checkpoint_steps: CheckpointSteps = 500,
    tensorboard: TensorBoard = False,
) -> None:
    """Train a segmentation network from image tags."""
    training = (data, images, masks, classes)
    _train(
        data_source(data, images, split, masks, separator, sbd, limit, classes),
        validation_source(val, val_images, val_split, val_masks, val_classes, separator, sbd, default=training),
        out,
        recipe,
        changes,
        on_masks=False,
        skip_bad=skip_bad,
        device=device,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
    )


@app.command(epilog="Example: `tagseg train-masks pseudo -o runs/student`")
def train_masks(
    data: Annotated[str, typer.Argument(help="Pseudo labels, VOC's folder, images/ beside masks/, or other data.")],
    out: RunFolder,
    recipe: RecipeName = "student",
    changes: Set = None,
    images: Images = None,
    split: Split = None,
    masks: Annotated[list[str] | None, typer.Option(help="Folder or zip with the masks, ID.png.")] = None,
    separator: Separator = None,
    sbd: Sbd = None,
    limit: Limit = None,
    classes: Classes = None,
    val: Validation = None,
    val_images: Images = None,
    val_split: Split = None,
    val_masks: Masks = None,
    val_classes: ValClasses = None,
    skip_bad: SkipBad = False,
    device: TrainingDevice = "auto",
    workers: DataWorkers = None,
    checkpoint_steps: CheckpointSteps = 500,
    tensorboard: TensorBoard = False,
) -> None:
    """Train a segmentation network on masks, such as pseudo labels."""
    training = (data, images, masks, classes)
    _train(
        data_source(data, images, split, masks, separator, sbd, limit, classes),
        validation_source(val, val_images, val_split, val_masks, val_classes, separator, sbd, default=training),
        out,
        recipe,
        changes,
        on_masks=True,
        skip_bad=skip_bad,
        device=device,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
    )


@app.command(epilog="Example: `tagseg pseudo-labels photos.csv -m runs/photos -o pseudo --ignore-below 0.7`")
def pseudo_labels(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder; the same command resumes.")],
    model: Model = DEFAULT_MODEL,
    images: Images = None,
    split: Split = None,
    separator: Separator = None,
    sbd: Sbd = None,
    classes: Classes = None,
    tta: Annotated[bool, typer.Option("--tta/--no-tta", help="Test-time augmentation: multi-scale and flip.")] = False,
    crf: Annotated[bool, typer.Option("--crf/--no-crf", help="Refine masks by a dense CRF.")] = False,
    size: Size = None,
    ignore_below: Annotated[
        float, typer.Option(min=0, max=1, help="Ignore pixels whose class is less probable than this.")
    ] = 0.0,
    device: Device = "auto",
    batch_size: BatchSize = None,
    optimize: Optimize = True,
    ray: Ray = None,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Write masks of tagged images to train on."""
    require_ray(ray)
    source = data_source(data, images, split, None, separator, sbd, classes=classes)
    require_model(model)
    working_size = parse_size(size)
    coverage = tagseg.write_pseudo_labels(
        source,
        out,
        model=tagseg.load(model, device=device, optimize=optimize),
        tta=tta,
        crf=crf,
        size=working_size,
        ignore_below=ignore_below,
        batch_size=batch_size,
        ray=ray,
        workers=workers,
        progress=True,
    )
    if json:
        print(coverage.to_json(), end="")
        return
    coverage.print()
    print(f"{coverage.images:,} images, {coverage.ignored_share:.1%} of the pixels ignored: masks are in {out}")
    print(f"Next: tagseg train-masks {out} -o RUN")


@app.command(epilog="Example: `tagseg recipes compact`")
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this recipe.")] = None,
    settings: Annotated[bool, typer.Option("--settings", help="List the settings that --set can change.")] = False,
    all_recipes: Annotated[bool, typer.Option("--all", help="Include the paper's tables and ablations.")] = False,
) -> None:
    """List recipes, or show one as a TOML file."""
    from tagseg.training.recipe import Recipe, describe_recipe, describe_settings, recipe_names

    if settings:
        for setting, (value, meaning) in describe_settings().items():
            print(f"{setting:36} {value:22} {meaning}")
    elif name:
        print(Recipe.load(name).to_toml(), end="")
    else:
        print("\n".join(f"{known:28} {describe_recipe(known)}" for known in recipe_names(all=all_recipes)))


def _train(
    source: "tagseg.DataSource",
    val: "tagseg.DataSource | None",
    out: Path,
    recipe: str,
    changes: list[str] | None,
    *,
    on_masks: bool,
    **options: Any,
) -> None:
    """Train on tags or on masks with the options of `tagseg.train`, and print what to do next."""
    require_recipe(recipe, changes, downloads=True)
    from tagseg.training.distributed import is_main_process  # imports torch

    train = tagseg.train_masks if on_masks else tagseg.train
    settings = tagseg.Recipe.load(recipe).with_assignments(changes or ())
    train(source, out, recipe=settings, val=val, progress=True, **options)
    if is_main_process():
        print(f"Trained: {out}")
        print(f"Next: tagseg predict IMAGES... -m {out}, or tagseg report {out}")
