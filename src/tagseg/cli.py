"""The command line: each command is the function of the same name."""

import re
import sys
from dataclasses import asdict
from glob import has_magic
from json import dumps as dump_json, loads as load_json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import tagseg  # imports nothing before it is used: torch alone takes seconds, which --help should not

MOST_NAMED = 10  # images whose classes are printed; all are in predictions.json

app = typer.Typer(
    name="tagseg",
    help="Image tags in, segmentation masks out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Data = Annotated[
    str, typer.Argument(help="A CSV, TSV or JSON lines file, a folder, a COCO JSON, VOC's folder, or shapes.")
]
Images = Annotated[list[str] | None, typer.Option(help="A folder or zip that holds the images; may be given again.")]
Split = Annotated[str | None, typer.Option(help="Which part of the data, where it has several.")]
Masks = Annotated[list[str] | None, typer.Option(help="A folder or zip with a mask per image, ID.png; for measuring.")]
Separator = Annotated[str | None, typer.Option(help="What separates the labels of a row; guessed if not given.")]
Sbd = Annotated[str | None, typer.Option(help="SBD's benchmark_RELEASE, if it is not beside VOC.")]
Quality = Annotated[bool, typer.Option("--tta", help="The paper's scales and flips: better, and slower.")]
Crf = Annotated[bool, typer.Option("--crf", help="Refine by a dense CRF.")]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Keep classes with at least this score; by default the best for the validation tags. The paper: 0.1."
    ),
]
Model = Annotated[
    str, typer.Argument(help="A run's folder, a model's file, or default: the one that comes with tagseg.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without images that cannot be read.")]


def _source(
    data: str,
    images: list[str] | None = None,
    split: str | None = None,
    masks: list[str] | None = None,
    separator: str | None = None,
    sbd: str | None = None,
) -> "tagseg.DataSource":
    return tagseg.DataSource(data, tuple(images or ()), split, tuple(masks or ()), separator, sbd)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(tagseg.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
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
    against: Annotated[list[str] | None, typer.Option(help="Another dataset that must not share an image.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Look at every image and tag before hours are spent on them."""
    found = tagseg.check(_source(data, images, split, None, separator, sbd), against=against or ())
    if json:
        print(found.to_json())
    else:
        found.print()
    if found.problems:
        raise typer.Exit(1)


@app.command(epilog="Example: `tagseg train photos.csv --images photos/ --out runs/photos`")
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="The run's folder; the same command goes on with a run that stopped.")],
    recipe: Annotated[str, typer.Option(help="A recipe's name (see `tagseg recipes`), or a TOML file.")] = "default",
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: section.field=value.")] = None,
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    separator: Separator = None,
    sbd: Sbd = None,
    val: Annotated[str | None, typer.Option(help="Tagged images to hold out: their tags choose thresholds.")] = None,
    val_images: Images = None,
    val_split: Split = None,
    val_masks: Masks = None,
    skip_bad: SkipBad = False,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that read images.")] = None,
    checkpoint_steps: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 500,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write for TensorBoard too.")] = False,
) -> None:
    """Train a segmentation network from tags."""
    from tagseg.training.processes import processes

    if val is None and val_split is not None:
        val, val_images, val_masks = data, val_images or images, val_masks or masks
    if val is None and (val_images or val_masks):
        raise ValueError("--val-images and --val-masks need the images that they belong to: name them by --val")
    tagseg.train(
        _source(data, images, split, masks, separator, sbd),
        out,
        recipe=recipe,
        changes=changes or (),
        val=_source(val, val_images, val_split, val_masks, separator, sbd) if val else None,
        skip_bad=skip_bad,
        workers=workers,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
    )
    if not processes().is_main_process:
        return
    print(f"trained: {out}")
    print(f"next: tagseg predict {out} PICTURES... -o predictions, or tagseg report {out}")


@app.command(
    epilog="Example: `tagseg predict runs/photos holiday/*.jpg -o predictions`, or only `tagseg predict dog.jpg`"
)
def predict(
    images: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders, zips or patterns. Before them, a run's folder or a model's file; without one, the "
            "model that comes with tagseg is used, which knows the 20 classes of PASCAL VOC."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder for masks, overlays and predictions.json.")
    ] = Path("predictions"),
    tta: Quality = False,
    crf: Crf = False,
    threshold: Threshold = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images of one size that are segmented together.")
    ] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Segment images, by a model of one's own or by the one that comes with tagseg."""
    from tagseg.predict.predictor import DEFAULT_MODEL
    from tagseg.predict.writing import INDEX_FILE

    model, first = DEFAULT_MODEL, Path(images[0]).expanduser()
    if images[0] == DEFAULT_MODEL or _is_model(first):
        model, *images = images
    elif not (first.exists() or first.suffix or has_magic(images[0])):
        raise ValueError(
            f"{images[0]}: does not exist; name images, and before them, if you like, a run's folder or a model"
        )
    if model == DEFAULT_MODEL:
        print("model: the one that comes with tagseg, for the 20 classes of PASCAL VOC", file=sys.stderr)
    bad = tagseg.predict_files(
        model,
        images,
        out,
        tta=tta,
        crf=crf,
        threshold=threshold,
        batch_size=batch_size,
        skip_bad=skip_bad,
    )
    for line in bad:
        print(f"skipped: {line}", file=sys.stderr)
    found = load_json((out / INDEX_FILE).read_text())["images"]
    for image in found[:MOST_NAMED]:
        classes = [f"{one['name']} {image['scores'][one['name']]:.0%}" for one in image["classes"]]
        print(f"{image['name']}: {', '.join(classes) or 'nothing that the model knows'}")
    count = f"{len(found)} image{'' if len(found) == 1 else 's'}"
    print(f"{count}: masks, overlays and {INDEX_FILE} are in {out}")


def _is_model(path: Path) -> bool:
    """Whether a path that could be of images is meant as a model: a run's folder, or a file of weights."""
    from tagseg.models.weights import SUFFIXES

    return path.suffix in SUFFIXES or (path.is_dir() and any(path.glob("*.safetensors")))


@app.command(epilog="Example: `tagseg evaluate runs/photos val.csv --masks masks/`")
def evaluate(
    model: Model,
    data: Data,
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    separator: Separator = None,
    sbd: Sbd = None,
    tta: Quality = False,
    crf: Crf = False,
    threshold: Threshold = None,
    tune_on_masks: Annotated[
        bool, typer.Option("--tune-on-masks", help="Choose the threshold on these masks; the result will say so.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The folder for evaluation.json; the run's folder by default.")
    ] = None,
) -> None:
    """Measure masks, with predicted and with true tags."""
    result = tagseg.evaluate(
        model,
        _source(data, images, split, masks, separator, sbd),
        tta=tta,
        crf=crf,
        threshold=threshold,
        tune_masks=tune_on_masks,
        out=out or (Path(model) if Path(model).is_dir() else None),
    )
    result.print()


@app.command(epilog="Example: `tagseg report runs/photos`")
def report(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path | None, typer.Option(help="The page; RUN/report.html by default.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Images to show.")] = 8,
) -> None:
    """Write one HTML page about a run."""
    print(f"open in a browser: {tagseg.write_report(run, out, count=count)}")


@app.command(epilog="Example: `tagseg recipes resnet50`")
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this recipe's settings.")] = None,
    all: Annotated[bool, typer.Option("--all", help="List those of the paper's tables and ablations too.")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="List the settings that --set can change, and what they do.")
    ] = False,
) -> None:
    """List the recipes, or show one with all its settings, as a file that --recipe takes."""
    from tagseg.training.recipe import describe_settings

    if settings:
        for setting, (value, meaning) in describe_settings().items():
            print(f"{setting:32} {value:22} {meaning}")
    elif name:
        print(tagseg.Recipe.load(name).to_toml(), end="")
    else:
        print("\n".join(f"{known:28} {purpose}" for known, purpose in tagseg.recipes(all=all).items()))


@app.command(epilog="Example: `tagseg bench pamr crf`, `tagseg bench evaluate --model runs/a --data val.csv`")
def bench(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Any of pamr, crf, train, predict; all by default. Or evaluate, for a model of your own."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="For evaluate: a run's folder, a model's file, or default.")] = None,
    data: Annotated[str | None, typer.Option(help="For evaluate: images with masks.")] = None,
    images: Images = None,
    split: Split = None,
    masks: Masks = None,
    threshold: Threshold = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 and so on.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure the fast paths on this machine, beside what they replace."""
    from tagseg.benchmarks.report import show

    if data is None and (images or split or masks):
        raise ValueError(
            "--images, --split and --masks belong to --data of the benchmark evaluate; add it, or leave them out"
        )
    messages = Console(stderr=True)
    takes = {"evaluate": "all images several times, without CRF and with it"}
    reports = tagseg.bench(
        what or (),
        model=model,
        data=_source(data, images, split, masks) if data is not None else None,
        threshold=threshold,
        device=device,
        on_start=lambda name: messages.print(f"measuring {name}: {takes.get(name, 'some minutes on a CPU')} ..."),
    )
    if json:
        print(dump_json([asdict(report) for report in reports], indent=1))
    else:
        for report in reports:
            show(report, Console())


@app.command(epilog="Example: `tagseg reproduce table-1 --voc VOCdevkit/VOC2012 --out runs`")
def reproduce(
    what: Annotated[str | None, typer.Argument(help="A table of the paper; all are listed if none is named.")] = None,
    voc: Annotated[
        Path | None, typer.Option(help="VOCdevkit/VOC2012 with SBD beside it, or a folder with its tables and zips.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs; what is done there is not done again.")] = Path(
        "runs"
    ),
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of every run: section.field=value.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands and run none.")] = False,
) -> None:
    """Redo a table of the paper: train, measure, and print our figures beside the paper's."""
    from tagseg.reproduction.runner import reproductions

    if what is None:
        print("\n".join(f"{name:24} {title}" for name, title in reproductions().items()))
        return
    if voc is None and what in reproductions():
        raise ValueError("reproduce needs VOC 2012's images: name their folder with --voc")
    if text := tagseg.reproduce(what, voc or Path(), out, changes=changes or (), dry_run=dry_run):
        print(text)


@app.command(epilog="Example: `tagseg demo`")
def demo(
    out: Annotated[Path, typer.Option(help="The folder for everything that the demo makes.")] = Path("demo"),
) -> None:
    """The whole job on built-in images: train the method and the CAM baseline, predict, measure, report."""
    from tagseg.demo import run_demo

    run_demo(out)


def main() -> None:
    """Run a command; what goes wrong is said in one line."""
    try:
        app()
    except Exception as error:
        from tagseg.errors import Interrupted

        if isinstance(error, Interrupted):
            print(f"tagseg: {error}", file=sys.stderr)
            sys.exit(130)  # as after Ctrl-C in any command
        if (line := _in_one_line(error)) is None:
            raise
        sys.exit(f"tagseg: {line}")


def _in_one_line(error: Exception) -> str | None:
    """What a person is told of an error; None of one that only a mistake in tagseg can cause."""
    import torch
    from safetensors import SafetensorError

    if isinstance(error, torch.OutOfMemoryError):
        hint = "lower training.batch_size or transforms.crop, or raise training.gradient_accumulation"
        return f"the GPU's memory is full ({str(error).splitlines()[0]}); {hint}"
    if isinstance(error, ValueError | OSError | FloatingPointError | SafetensorError):
        return _in_options(" ".join(str(error).split()))
    return None


# What a function calls by keyword, the command line calls by option.
_OPTIONS = {
    "images=": "--images",
    "masks=": "--masks",
    "split=": "--split",
    "separator=": "--separator",
    "skip_bad=True": "--skip-bad",
    "pretrained=PATH": "--set model.pretrained=PATH",
    "pretrained=false": "--set model.pretrained=false",
}


def _in_options(text: str) -> str:
    for keyword, option in _OPTIONS.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(keyword)}", option, text)
    return text


if __name__ == "__main__":
    main()
