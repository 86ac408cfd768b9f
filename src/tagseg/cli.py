"""Command line: one command for each function of `tagseg.api`."""

import logging
import os
import sys
import traceback
from collections.abc import Iterable
from glob import has_magic
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

import tagseg  # lazy: torch takes seconds to import, which --help and a wrong path should not wait for
from tagseg.errors import ConfigError, DataError, Interrupted, TagsegError, WeightsError, printable

DEFAULT_MODEL = "default"
_MAX_LISTED = 10  # images whose classes are printed; all are in predictions.json
_MAX_LEAST_CERTAIN = 5  # images that are printed as the least certain; more are in predictions.json

app = typer.Typer(
    name="tagseg",
    help="Image tags in, segmentation masks out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

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
Workers = Annotated[int | None, typer.Option(min=1, help="Workers on the cluster; one a GPU or core by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(tagseg.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Image tags in, segmentation masks out."""


@app.command(epilog="Example: `tagseg check photos.csv --images photos/`")
def check(
    data: Data,
    images: Images = None,
    split: Split = None,
    separator: Separator = None,
    sbd: Sbd = None,
    classes: Classes = None,
    val: Annotated[str | None, typer.Option(help="Validation data; a fraction of the data by default.")] = None,
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
    source = _source(data, images, split, None, separator, sbd, classes=classes)
    val_source = _validation_source(
        val, val_images, val_split, None, val_classes, separator, sbd, default=(data, images, None, classes)
    )
    _require_recipe(recipe, changes)
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
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command resumes a run.")],
    recipe: Annotated[str, typer.Option(help="Recipe name (see `tagseg recipes`) or TOML file.")] = "default",
    changes: Set = None,
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    separator: Separator = None,
    sbd: Sbd = None,
    limit: Limit = None,
    classes: Classes = None,
    val: Annotated[str | None, typer.Option(help="Validation data; a fraction of the data by default.")] = None,
    val_images: Images = None,
    val_split: Split = None,
    val_masks: Masks = None,
    val_classes: ValClasses = None,
    skip_bad: SkipBad = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=0, help="Number of data loading workers.")] = None,
    checkpoint_steps: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 500,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")] = False,
) -> None:
    """Train a segmentation network from image tags."""
    source = _source(data, images, split, masks, separator, sbd, limit, classes)
    val_source = _validation_source(
        val,
        val_images,
        val_split,
        val_masks,
        val_classes,
        separator,
        sbd,
        default=(data, images, masks, classes),
    )
    _require_recipe(recipe, changes)
    tagseg.train(
        source,
        out,
        recipe=tagseg.Recipe.load(recipe).with_assignments(changes or ()),
        val=val_source,
        skip_bad=skip_bad,
        device=device,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
        progress=True,
    )
    _print_trained(out)


@app.command(epilog="Example: `tagseg train-masks pseudo -o runs/student`")
def train_masks(
    data: Annotated[str, typer.Argument(help="Pseudo labels, VOC's folder, images/ beside masks/, or other data.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command resumes a run.")],
    recipe: Annotated[str, typer.Option(help="Recipe name (see `tagseg recipes`) or TOML file.")] = "student",
    changes: Set = None,
    images: Images = None,
    split: Split = None,
    masks: Annotated[list[str] | None, typer.Option(help="Folder or zip with the masks, ID.png.")] = None,
    separator: Separator = None,
    sbd: Sbd = None,
    limit: Limit = None,
    classes: Classes = None,
    val: Annotated[str | None, typer.Option(help="Validation data; a fraction of the data by default.")] = None,
    val_images: Images = None,
    val_split: Split = None,
    val_masks: Masks = None,
    val_classes: ValClasses = None,
    skip_bad: SkipBad = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=0, help="Number of data loading workers.")] = None,
    checkpoint_steps: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 500,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")] = False,
) -> None:
    """Train a segmentation network on masks, such as pseudo labels."""
    source = _source(data, images, split, masks, separator, sbd, limit, classes)
    val_source = _validation_source(
        val,
        val_images,
        val_split,
        val_masks,
        val_classes,
        separator,
        sbd,
        default=(data, images, masks, classes),
    )
    _require_recipe(recipe, changes)
    tagseg.train_masks(
        source,
        out,
        recipe=tagseg.Recipe.load(recipe).with_assignments(changes or ()),
        val=val_source,
        skip_bad=skip_bad,
        device=device,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
        progress=True,
    )
    _print_trained(out)


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
    _require_ray(ray)
    source = _source(data, images, split, None, separator, sbd, classes=classes)
    _require_model(model)
    working_size = _parse_size(size)
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


@app.command(epilog="Example: `tagseg predict holiday/*.jpg -m runs/photos -o predictions`")
def predict(
    images: Annotated[list[str], typer.Argument(help="Images, folders, zips, glob patterns, URLs, videos, or -.")],
    model: Model = DEFAULT_MODEL,
    out: Out = Path("predictions"),
    tags: Annotated[str | None, typer.Option(help="Table of the images' tags, to limit masks to.")] = None,
    tta: Tta = False,
    crf: Crf = False,
    threshold: Threshold = None,
    size: Size = None,
    overlay: Annotated[
        bool | None, typer.Option("--overlay/--no-overlay", help="Write overlays; the default for png.")
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Opacity of the overlays' colors.")] = 0.6,
    legend: Annotated[bool, typer.Option("--legend", help="Add a legend to the right of each overlay.")] = False,
    confidence: Annotated[bool, typer.Option("--confidence", help="Write each pixel's confidence as PNG.")] = False,
    format: Annotated[
        Literal["png", "parquet"], typer.Option(help="Files, or rows of Parquet files in parts.")
    ] = "png",
    every: Annotated[float | None, typer.Option(help="Seconds between frames of a video.")] = None,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Continue a job: keep images that are predicted.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace predictions of earlier calls.")] = False,
    shard: Annotated[str | None, typer.Option(help="Part of the images to segment, such as 1/4.")] = None,
    ray: Ray = None,
    workers: Workers = None,
    device: Device = "auto",
    batch_size: BatchSize = None,
    optimize: Optimize = True,
    skip_bad: SkipBad = False,
) -> None:
    """Segment images: write masks, overlays and predictions.json."""
    _require_ray(ray)
    _require_images(images)
    if tags is not None:
        _require_paths([tags], "name a CSV, TSV or JSON lines file of image and tags")
    _require_model(model)
    working_size, part = _parse_size(size), _parse_shard(shard)
    source = "the one that comes with tagseg, for the 20 classes of PASCAL VOC" if model == DEFAULT_MODEL else model
    print(f"Model: {source}", file=sys.stderr, flush=True)
    try:
        index = tagseg.predict_files(
            images,
            out,
            model=tagseg.load(model, device=device, optimize=optimize),
            tags=tags,
            every=every,
            tta=tta,
            crf=crf,
            threshold=threshold,
            size=working_size,
            overlay=overlay,
            alpha=alpha,
            legend=legend,
            confidence=confidence,
            format=format,
            batch_size=batch_size,
            skip_bad=skip_bad,
            skip_existing=skip_existing,
            overwrite=overwrite,
            shard=part,
            ray=ray,
            workers=workers,
            progress=True,
        )
    except KeyboardInterrupt:
        raise Interrupted("stopped", "continue by the same command with {skip_existing}") from None
    _print_predictions(index, out, shard)


@app.command(epilog="Example: `tagseg export-masks predictions --format cvat -o masks.zip`")
def export_masks(
    data: Annotated[str, typer.Argument(help="Folder of predictions, pseudo labels, or other data with masks.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder or zip to write; it must not exist.")],
    mask_format: Annotated[str, typer.Option("--format", help="coco, yolo, cvat, label-studio or hf.")],
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    separator: Separator = None,
    sbd: Sbd = None,
    limit: Limit = None,
    classes: Classes = None,
    polygons: Annotated[bool, typer.Option("--polygons", help="Polygons in COCO, instead of run lengths.")] = False,
    image_files: Annotated[str, typer.Option(help="Image files: copy, link or none.")] = "copy",
    image_url: Annotated[str | None, typer.Option(help="Start of the images' URLs, for Label Studio.")] = None,
) -> None:
    """Write masks for an annotation tool or library."""
    source = _source(data, images, split, masks, separator, sbd, limit, classes)
    result = tagseg.export_masks(
        source,
        out,
        format=mask_format,  # type: ignore[arg-type]  # checked there
        polygons=polygons,
        image_files=image_files,  # type: ignore[arg-type]
        image_url=image_url,
        progress=True,
    )
    if result.without_masks:
        print(f"Left out: {result.without_masks:,} of {result.images + result.without_masks:,} images have no mask")
    print(
        f"{result.images:,} image{'' if result.images == 1 else 's'}, {len(result.classes)} classes: masks are in {out}"
    )


@app.command(epilog="Example: `tagseg evaluate val.csv --masks masks/ -m runs/photos`")
def evaluate(
    data: Data,
    model: Model = DEFAULT_MODEL,
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    separator: Separator = None,
    sbd: Sbd = None,
    limit: Limit = None,
    classes: Classes = None,
    tta: Tta = False,
    crf: Crf = False,
    threshold: Threshold = None,
    size: Size = None,
    tune_on_masks: Annotated[
        bool, typer.Option("--tune-on-masks", help="Tune the threshold on these masks; the result says so.")
    ] = False,
    device: Device = "auto",
    batch_size: BatchSize = None,
    optimize: Optimize = True,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for evaluation.json; the run folder by default.")
    ] = None,
) -> None:
    """Evaluate masks, with predicted and with true tags."""
    source = _source(data, images, split, masks, separator, sbd, limit, classes)
    _require_model(model)
    working_size = _parse_size(size)
    result = tagseg.evaluate(
        source,
        model=tagseg.load(model, device=device, optimize=optimize),
        tta=tta,
        crf=crf,
        threshold=threshold,
        size=working_size,
        tune_on_masks=tune_on_masks,
        batch_size=batch_size,
        out=out or (Path(model) if Path(model).is_dir() and model != DEFAULT_MODEL else None),
        progress=True,
    )
    result.print()


@app.command(epilog="Example: `tagseg report runs/photos`")
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML file; RUN/report.html by default.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of images to show.")] = 8,
    check_tags: Annotated[int, typer.Option(min=0, help="Number of training images whose tags to check.")] = 300,
) -> None:
    """Write an HTML report of a run, with a diagnosis."""
    _require_paths([str(run)], "name the folder that tagseg train wrote")
    print(f"Open in a browser: {tagseg.write_report(run, out, count=count, check_tags=check_tags, progress=True)}")


@app.command(epilog="Example: `tagseg export -m runs/photos model.onnx`")
def export(
    out: Annotated[Path, typer.Argument(help="File to write, .onnx or .pt2, or a folder for the Hugging Face hub.")],
    model: Model = DEFAULT_MODEL,
    license: Annotated[str | None, typer.Option(help="License in the model card of a folder: apache-2.0, ...")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write a model to run elsewhere: ONNX, torch.export, or the hub."""
    _require_model(model)
    if not out.suffix or out.is_dir():
        if overwrite:
            raise ConfigError("--overwrite is for files", "choose a new folder")
        tagseg.load(model, device="cpu", optimize=False).save_pretrained(out, license=license)
        print(f"Written: {out}, with its model card README.md")
        print(f"Next: hf upload ORGANIZATION/NAME {out}, or tagseg predict IMAGES... -m {out}")
        return
    if license is not None:
        raise ConfigError("--license is for the model card of a folder", "name a folder, or leave it out")
    tagseg.export_model(out, model=model, overwrite=overwrite, progress=True)
    print(f"Written: {out}, which gives the same masks as torch for images of five sizes")
    if out.suffix == ".onnx":
        print(f"Next: tagseg predict IMAGES... -m {out}")


@app.command(epilog="Example: `tagseg recipes compact`")
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this recipe.")] = None,
    settings: Annotated[bool, typer.Option("--settings", help="List the settings that --set can change.")] = False,
    all_recipes: Annotated[bool, typer.Option("--all", help="Include the paper's tables and ablations.")] = False,
) -> None:
    """List recipes, or show one as a TOML file."""
    from tagseg.training.recipe import describe_settings

    if settings:
        for setting, (value, meaning) in describe_settings().items():
            print(f"{setting:36} {value:22} {meaning}")
    elif name:
        print(tagseg.Recipe.load(name).to_toml(), end="")
    else:
        print("\n".join(f"{known:28} {purpose}" for known, purpose in tagseg.recipes(all=all_recipes).items()))


@app.command(epilog="Example: `tagseg bench pamr crf`, `tagseg bench sizes -m runs/a --data val.csv`")
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="pamr, crf, train, predict (the default); workers; evaluate or sizes of a model."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="For these two: run folder or model file.")] = None,
    data: Annotated[str | None, typer.Option(help="For these two: images with masks.")] = None,
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    threshold: Threshold = None,
    size: Size = None,
    limit: Limit = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Benchmark fast paths against what they replace."""
    from tagseg.benchmarks.report import show, to_json

    if data is None and (images or split or masks or limit):
        raise DataError("--images, --split, --masks and --limit belong to --data of the benchmarks evaluate and sizes")
    if model is not None:
        _require_model(model)
    messages = Console(stderr=True)
    durations = {
        "evaluate": "all images several times, without and with CRF",
        "sizes": "all images at several sizes; --limit takes fewer",
    }
    reports = tagseg.bench(
        names or (),
        model=model,
        data=_source(data, images, split, masks, limit=limit) if data is not None else None,
        threshold=threshold,
        size=_parse_size(size),
        device=device,
        on_start=lambda name: messages.print(f"Measuring {name}: {durations.get(name, 'some minutes on a CPU')} ..."),
    )
    if json:
        print(to_json(reports))
    else:
        for result in reports:
            show(result, Console())


@app.command(epilog="Example: `tagseg reproduce table-1 --voc VOCdevkit/VOC2012 -o runs`")
def reproduce(
    table: Annotated[str | None, typer.Argument(help="Table of the paper; lists them by default.")] = None,
    voc: Annotated[Path | None, typer.Option(help="VOCdevkit/VOC2012 with SBD beside it, or packed tables.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs; finished ones are reused.")] = Path(
        "runs"
    ),
    changes: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands only.")] = False,
) -> None:
    """Reproduce a table of the paper."""
    _require_paths([str(voc)] if voc else (), "name the folder VOCdevkit/VOC2012")
    from tagseg.reproduction.runner import reproductions

    if table is None:
        print("\n".join(f"{name:24} {title}" for name, title in reproductions().items()))
        return
    if voc is None and table in reproductions():
        raise DataError("reproduce needs the images of VOC 2012; name their folder with --voc")
    if text := tagseg.reproduce(
        table, voc or Path(), out, changes=changes or (), dry_run=dry_run, on_command=print, progress=True
    ):
        print(text)


@app.command(epilog="Example: `tagseg demo`")
def demo(out: Out = Path("demo")) -> None:
    """Segment photos; train, evaluate and report on generated images."""
    from tagseg.demo import run_demo

    run_demo(out)


@app.command("app", epilog="Example: `tagseg app runs/photos`")
def serve(
    run: Annotated[Path | None, typer.Argument(help="Run folder to look at; the page uses its model.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Run folder, model file, or default: tagseg's own model.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve at; others than this machine's need a password.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve at; 0 takes a free one.")] = 7860,
    password: Annotated[
        str | None, typer.Option(envvar="TAGSEG_PASSWORD", help="Password for the page, under any user name.")
    ] = None,
    device: Device = "auto",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open a page to try a model and look at a run."""
    _require_paths([str(run)] if run is not None else (), "name the folder that tagseg train wrote")
    if model is not None:
        _require_model(model)
    print("Loading the model and the page ...", file=sys.stderr, flush=True)
    tagseg.serve_app(run, model=model, host=host, port=port, password=password, device=device, open_browser=browser)


@app.command(epilog="Example: `tagseg doctor`")
def doctor(device: Device = "auto", json: Json = False) -> None:
    """Show what runs here, and test it.

    The text is Markdown for an issue, without paths and names. Exit status: 1 if a self-test fails.
    """
    try:
        from tagseg.doctor import diagnose
    except (ImportError, OSError) as error:
        raise ConfigError(f"a dependency is broken ({error})", "install tagseg into a new environment") from error
    diagnosis = diagnose(device)
    print(diagnosis.to_json() if json else diagnosis.to_markdown())
    if not diagnosis.passed:
        raise typer.Exit(1)


def main() -> None:
    """Run a command; errors that a user can mend are one line."""
    logger = logging.getLogger("tagseg")
    logger.setLevel(logging.INFO)
    handler = logging.StreamHandler()  # messages of the library, on stderr
    handler.format = lambda record: printable(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        app()
    except Interrupted as error:
        print(f"tagseg: {error.for_cli()}", file=sys.stderr)
        sys.exit(130)  # as after Ctrl-C in any command
    except TagsegError as error:
        sys.exit(f"tagseg: {error.for_cli()}")
    except MemoryError:
        sys.exit("tagseg: the memory of this machine is full; close other programs, or use smaller files or images")
    except Exception:
        traceback.print_exc()
        sys.exit(
            f"tagseg {tagseg.__version__}: this is a bug in tagseg, not in your data; please open an issue in its "
            "repository with the command and the traceback above"
        )
    finally:
        logger.removeHandler(handler)


def _source(
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
        _require_paths([data], "name a CSV, TSV, JSON lines or COCO JSON file, a folder, or 'shapes'")
    _require_paths([*(images or ()), *(masks or ()), *([sbd] if sbd else ())], "name a folder or a zip")
    return tagseg.DataSource(data, tuple(images or ()), split, tuple(masks or ()), separator, sbd, limit, classes)


def _validation_source(
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
    return _source(data, images, split, masks, separator, sbd, classes=classes or default[3]) if data else None


def _print_trained(out: Path) -> None:
    from tagseg.training.distributed import is_main_process

    if is_main_process():
        print(f"Trained: {out}")
        print(f"Next: tagseg predict IMAGES... -m {out}, or tagseg report {out}")


def _print_predictions(index: dict[str, Any], out: Path, shard: str | None) -> None:
    from tagseg.predict.sources import summarize_left_out

    for reason in index["skipped"][:_MAX_LISTED]:
        print(f"Skipped: {printable(reason)}", file=sys.stderr)
    if len(index["skipped"]) > _MAX_LISTED:
        print(f"... and {len(index['skipped']) - _MAX_LISTED} more skipped", file=sys.stderr)
    if left_out := summarize_left_out(index["left_out"], "Left out: "):
        print(printable(left_out), file=sys.stderr)
    if "part_size" in index:
        count = index["images"] - len(index["skipped"])
        print(f"{count:,} image{'' if count == 1 else 's'}: {', '.join(index['files'])} and job.json are in {out}")
        return
    predictions = index["images"]
    file = f"predictions-{shard.replace('/', '-of-')}.json" if shard else "predictions.json"
    for image in predictions[:_MAX_LISTED]:
        classes = [f"{entry['name']} {image['scores'][entry['name']]:.0%}" for entry in image["classes"]]
        print(f"{image['name']}: {', '.join(classes) or 'no known class found'}")
    if len(predictions) > _MAX_LISTED:
        print(f"... and {len(predictions) - _MAX_LISTED} more in {file}")
    count = f"{len(predictions)} image{'' if len(predictions) == 1 else 's'}"
    if len(predictions) > _MAX_LEAST_CERTAIN:
        print(f"Least certain, to look at first: {', '.join(index['least_certain'][:_MAX_LEAST_CERTAIN])}")
    kinds = {kind for image in predictions for kind in image["files"]}
    written = ["masks", *["overlays"] * ("overlay" in kinds), *["confidence images"] * ("confidence" in kinds)]
    print(f"{count}: {', '.join(written)} and {file} are in {out}")


def _parse_shard(text: str | None) -> tuple[int, int] | None:
    """Part of the images of an option, as in 2/4."""
    if text is None:
        return None
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError(
            f"--shard {text}: is not a part of the images", "write for example --shard 1/4 to --shard 4/4"
        )
    return int(number), int(count)


def _parse_size(text: str | None) -> int | Literal["native"] | None:
    """Working size of an option."""
    if text is None:
        return None
    if text == "native":
        return "native"
    if not text.isdecimal():
        raise ConfigError(f"--size {text}: is neither native nor a number of pixels", "write for example --size 500")
    return int(text)


def _is_generated(data: str) -> bool:
    return data.partition(":")[0] == "shapes"


def _require_paths(paths: Iterable[str] | None, advice: str = "check the path") -> None:
    """Refuse paths that do not exist before torch is imported; patterns and members of zips are checked later."""
    for path in paths or ():
        location = Path(os.path.expanduser(path))  # noqa: PTH111  keeps ~name if there is no such user
        container = Path(str(location).rpartition(":")[0])
        if not (location.exists() or has_magic(path) or (container.name and container.is_file())):
            raise DataError(f"{path}: does not exist", advice)


def _require_images(images: Iterable[str]) -> None:
    """Refuse images that do not exist, and URLs that cannot be downloaded, before torch is imported."""
    from tagseg.data.urls import check_url, is_url

    for url in filter(is_url, images):
        check_url(url)
    paths = [image for image in images if image != "-" and not is_url(image)]
    _require_paths(paths, "name an image, a folder, a zip, a URL or a pattern such as photos/*.jpg")


def _require_model(model: str, *, hub: bool = True) -> None:
    """Refuse a model that does not exist, neither here nor on the hub, before torch is imported."""
    from tagseg._hub import find_on_hub, is_hub_name

    if model == DEFAULT_MODEL or Path(os.path.expanduser(model)).exists():  # noqa: PTH111
        return
    if not (hub and is_hub_name(model)):
        raise WeightsError(f"{model}: does not exist", f"name a run folder, a model file, or {DEFAULT_MODEL}")
    find_on_hub(model, "model.safetensors")


def _require_ray(address: str | None) -> None:
    """Refuse a cluster that does not answer before torch is imported."""
    if address is not None:
        from tagseg._ray import check_ray

        check_ray(address)


def _require_recipe(recipe: str, changes: Iterable[str] | None) -> None:
    if recipe.endswith(".toml") and not Path(recipe).is_file():
        raise ConfigError(f"{recipe}: does not exist", "name a recipe or a TOML file; tagseg recipes lists the recipes")
    for change in changes or ():
        name, _, source = change.partition("=")
        if name == "model.pretrained" and "/" in source:
            _require_model(source, hub=False)


if __name__ == "__main__":
    main()
