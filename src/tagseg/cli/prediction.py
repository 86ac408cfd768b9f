"""Commands that use a model: predict, evaluate, report, export-masks, export, app."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import tagseg
from tagseg._hub import DEFAULT_MODEL
from tagseg.cli._app import app
from tagseg.cli.options import (
    BatchSize,
    Classes,
    Crf,
    Data,
    Device,
    Images,
    Limit,
    Masks,
    Model,
    Optimize,
    Out,
    Ray,
    Sbd,
    Separator,
    Size,
    SkipBad,
    Split,
    Threshold,
    Tta,
    Workers,
    data_source,
    parse_shard,
    parse_size,
    require_images,
    require_model,
    require_paths,
    require_ray,
)
from tagseg.errors import ConfigError, Interrupted, printable

_MAX_LISTED = 10  # images whose classes are printed; all are in predictions.json


_MAX_LEAST_CERTAIN = 5  # images that are printed as the least certain; more are in predictions.json


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
    require_ray(ray)
    require_images(images)
    if tags is not None:
        require_paths([tags], "name a CSV, TSV or JSON lines file of image and tags")
    require_model(model)
    working_size, part = parse_size(size), parse_shard(shard)
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
    source = data_source(data, images, split, masks, separator, sbd, limit, classes)
    require_model(model)
    working_size = parse_size(size)
    run = Path(model).expanduser()
    result = tagseg.evaluate(
        source,
        model=tagseg.load(model, device=device, optimize=optimize),
        tta=tta,
        crf=crf,
        threshold=threshold,
        size=working_size,
        tune_on_masks=tune_on_masks,
        batch_size=batch_size,
        out=out or (run if model != DEFAULT_MODEL and run.is_dir() else None),
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
    require_paths([str(run)], "name the folder that tagseg train wrote")
    print(f"Open in a browser: {tagseg.write_report(run, out, count=count, check_tags=check_tags, progress=True)}")


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
    source = data_source(data, images, split, masks, separator, sbd, limit, classes)
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


@app.command(epilog="Example: `tagseg export -m runs/photos model.onnx`")
def export(
    out: Annotated[Path, typer.Argument(help="File to write, .onnx or .pt2, or a folder for the Hugging Face hub.")],
    model: Model = DEFAULT_MODEL,
    license: Annotated[str | None, typer.Option(help="License in the model card of a folder: apache-2.0, ...")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write a model to run elsewhere: ONNX, torch.export, or the hub."""
    require_model(model)
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
    require_paths([str(run)] if run is not None else (), "name the folder that tagseg train wrote")
    if model is not None:
        require_model(model)
    print("Loading the model and the page ...", file=sys.stderr, flush=True)
    tagseg.serve_app(run, model=model, host=host, port=port, password=password, device=device, open_browser=browser)


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
