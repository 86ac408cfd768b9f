"""Commands that measure tagseg itself: bench, reproduce, demo, doctor."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import tagseg
from tagseg.cli._app import app
from tagseg.cli.options import (
    Device,
    Images,
    Json,
    Limit,
    Masks,
    Out,
    Set,
    Size,
    Split,
    Threshold,
    data_source,
    parse_size,
    require_model,
    require_paths,
)
from tagseg.errors import ConfigError, DataError


@app.command(epilog="Example: `tagseg bench pamr crf`, `tagseg bench sizes -m runs/a --data val.csv`")
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="pamr, crf, train, predict (the default); workers; evaluate or sizes of a model."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model (evaluate, sizes): run folder or model file.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Images with masks (evaluate, sizes).")] = None,
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
        require_model(model)
    messages = Console(stderr=True)
    durations = {
        "evaluate": "all images several times, without and with CRF",
        "sizes": "all images at several sizes; --limit takes fewer",
    }
    reports = tagseg.bench(
        names or (),
        model=model,
        data=data_source(data, images, split, masks, limit=limit) if data is not None else None,
        threshold=threshold,
        size=parse_size(size),
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
    require_paths([str(voc)] if voc else (), "name the folder VOCdevkit/VOC2012")
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
