"""`tagseg reproduce`: train and evaluate the runs of a table, one command at a time, skipping what is done.

A run that has a teacher is trained on the pseudo labels of that run.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tagseg._hub import MODEL_FILE
from tagseg.api import evaluate, train, train_masks, write_pseudo_labels
from tagseg.data import DataSource
from tagseg.data.voc import find_voc
from tagseg.errors import DataError, unknown_name
from tagseg.evaluation.result import EVALUATION_FILE
from tagseg.export.pseudo_labels import COVERAGE_FILE
from tagseg.models.serialization import read_notes
from tagseg.predict.settings import NOTE, PAPER_THRESHOLD, InferenceSettings
from tagseg.reproduction.mask_sheet import COUNT, draw_masks
from tagseg.reproduction.measurements import MEASUREMENTS, measured_model, measurement_file
from tagseg.reproduction.paper import TABLES, Result, find_run
from tagseg.reproduction.tables import paper_table
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import read_config

IMAGES = "images"
_IMAGES_RUN = "resnet50"  # the run whose masks are drawn
_PSEUDO_LABELS = "pseudo-labels"  # folder in the run folder of a teacher


def reproductions() -> dict[str, str]:
    """Return what `reproduce` can do, each name with a description."""
    return {name: table.title for name, table in TABLES.items()} | {
        IMAGES: f"masks of {COUNT} val images, evenly spaced over their IDs: prediction, with CRF, ground truth"
    }


def reproduce(
    what: str,
    voc: str | Path,
    out: str | Path = "runs",
    *,
    changes: Sequence[str] = (),
    dry_run: bool = False,
    on_command: Callable[[str], None] | None = None,
    progress: bool = False,
) -> str:
    """Train and evaluate the runs of a table of the paper; what is done already is skipped.

    Args:
        what: Name of a table such as `table-1`, or `images`; `reproductions` lists them.
        voc: VOCdevkit/VOC2012 with SBD beside it, or a folder with train_aug.csv, val.csv and their zips.
        out: Folder of the runs, with a folder for each.
        changes: Settings to change in every run, such as `model.pretrained=weights/{backbone}.safetensors`.
        dry_run: Whether to only name the commands.
        on_command: Function called with each command before it runs; that of a finished step is a comment.
        progress: Show the progress of each step on stderr.

    Returns:
        The table as Markdown with our results beside the paper's, or the path of the images; nothing for a dry run.
    """
    if what not in reproductions():
        raise unknown_name("table", what, reproductions())
    sources, out = open_voc(Path(voc).expanduser()), Path(out)
    steps: Iterable[Step] = training_steps(_IMAGES_RUN, sources, out, changes)
    if what != IMAGES:
        steps = steps_for(TABLES[what].results, sources, out, changes)
    for step in steps:
        done = step.done
        if on_command is not None:
            on_command(f"# done: {step.command}" if done else step.command)
        if not done and not dry_run:
            step.run(progress=progress)
    if dry_run:
        return ""
    if what == IMAGES:
        return f"images: {draw_masks(out / _IMAGES_RUN, sources.val, out / 'images.png', threshold=PAPER_THRESHOLD)}"
    return paper_table(TABLES[what], out)


@dataclass(frozen=True)
class VocSources:
    """Datasets of the paper's tables.

    Attributes:
        train_aug: The 10,582 training images.
        val: The validation images, with masks.
        train: The images of VOC's `train`, with masks, on which pseudo labels are evaluated.
    """

    train_aug: DataSource
    val: DataSource
    train: DataSource


def open_voc(folder: Path) -> VocSources:
    """Find VOC's datasets in a folder.

    Args:
        folder: VOCdevkit/VOC2012 with SBD's benchmark_RELEASE beside VOCdevkit; or a folder with train_aug.csv and
            val.csv, the zips of their images (val.zip with masks), and train-masks.zip.
    """
    tables = {name: folder / f"{name}.csv" for name in ("train_aug", "val")}
    if all(table.is_file() for table in tables.values()):
        train_aug = str(tables["train_aug"])
        # Evaluation leaves out images without masks, and train-masks.zip has the masks of `train` only.
        train = DataSource(train_aug, masks=(str(folder / "train-masks.zip"),))
        return VocSources(DataSource(train_aug), DataSource(str(tables["val"])), train)
    if find_voc(folder) is None:
        raise DataError(
            f"{folder}: is not VOC 2012",
            "give VOCdevkit/VOC2012, or a folder with train_aug.csv, val.csv and their zips, as {voc}",
        )
    return VocSources(*(DataSource(str(folder), split=split) for split in ("train_aug", "val", "train")))


class Step(Protocol):
    """A step of a reproduction, which is one command of tagseg."""

    @property
    def command(self) -> str:
        """The command, for a shell."""

    @property
    def done(self) -> bool:
        """Whether the result exists."""

    def run(self, *, progress: bool = False) -> None:
        """Run the step, or resume it."""


@dataclass(frozen=True)
class TrainStep:
    """Training of a run, on image tags or on pseudo labels.

    Attributes:
        folder: The run folder.
        recipe: Name of the recipe.
        changes: Settings to change in the recipe.
        data: The training images.
        val: The validation images; None holds out some of the training images.
    """

    folder: Path
    recipe: str
    changes: tuple[str, ...]
    data: DataSource
    val: DataSource | None

    @property
    def command(self) -> str:
        words = [self._function.__name__.replace("_", "-"), self.data.path, *_options(self.data)]
        if self.val is not None:
            words += ["--val", self.val.path, *_options(self.val, prefix="val-")]
        changes = [word for change in self.changes for word in ("--set", change)]
        return shlex.join(["tagseg", *words, "--recipe", self.recipe, *changes, "--out", str(self.folder)])

    @property
    def done(self) -> bool:
        """Whether a run of the same settings is complete: tuning thresholds or the temperature is its last part."""
        model = self.folder / MODEL_FILE
        if not model.is_file():
            return False
        notes = read_notes(model)
        if NOTE not in notes:
            return False
        settings = InferenceSettings.from_json(notes[NOTE])
        if settings.thresholds_from != "tags" and settings.temperature == 1:
            return False
        return Recipe.parse(read_config(self.folder)["recipe"]) == self._resolved

    def run(self, *, progress: bool = False) -> None:
        self._function(self.data, self.folder, recipe=self._resolved, val=self.val, progress=progress)

    @property
    def _resolved(self) -> Recipe:
        return Recipe.load(self.recipe, self.changes)

    @property
    def _function(self) -> Callable[..., object]:
        return train_masks if self._resolved.model.method == "supervised" else train


@dataclass(frozen=True)
class PseudoLabelStep:
    """Pseudo labels of the training images by a run, with TTA.

    Attributes:
        teacher: The run folder.
        data: The training images.
    """

    teacher: Path
    data: DataSource

    @property
    def folder(self) -> Path:
        """Folder of the pseudo labels."""
        return self.teacher / _PSEUDO_LABELS

    @property
    def command(self) -> str:
        words = [self.data.path, *_options(self.data), "--model", str(self.teacher), "--tta"]
        return shlex.join(["tagseg", "pseudo-labels", *words, "--out", str(self.folder)])

    @property
    def done(self) -> bool:
        return (self.folder / COVERAGE_FILE).is_file()

    def run(self, *, progress: bool = False) -> None:
        write_pseudo_labels(self.data, self.folder, model=self.teacher, tta=True, progress=progress)


@dataclass(frozen=True)
class EvaluateStep:
    """Evaluation of a run.

    Attributes:
        folder: The run folder.
        name: Name of the measurement.
        voc: The datasets.
    """

    folder: Path
    name: str
    voc: VocSources

    @property
    def command(self) -> str:
        measurement, source = MEASUREMENTS[self.name], self._source
        words = [source.path, "--model", str(measured_model(self.folder, self.name)), *_options(source)]
        words += ["--tta"] * measurement.tta + ["--crf"] * measurement.crf
        words += [] if measurement.threshold is None else ["--threshold", f"{measurement.threshold:g}"]
        words += ["--out", str(self.folder)] * measurement.last
        move = ["mv", str(self.folder / EVALUATION_FILE), str(measurement_file(self.folder, self.name))]
        return f"{shlex.join(['tagseg', 'evaluate', *words])} && {shlex.join(move)}"

    @property
    def done(self) -> bool:
        return measurement_file(self.folder, self.name).is_file()

    def run(self, *, progress: bool = False) -> None:
        measurement = MEASUREMENTS[self.name]
        evaluate(
            self._source,
            model=measured_model(self.folder, self.name),
            tta=measurement.tta,
            crf=measurement.crf,
            threshold=measurement.threshold,
            out=self.folder,
            progress=progress,
        )
        (self.folder / EVALUATION_FILE).replace(measurement_file(self.folder, self.name))

    @property
    def _source(self) -> DataSource:
        return self.voc.val if MEASUREMENTS[self.name].images == "val" else self.voc.train


def training_steps(run: str, voc: VocSources, out: Path, changes: Sequence[str]) -> Iterator[Step]:
    """Yield the steps that train a run, after those of its teacher if it has one.

    Args:
        run: Name of the run.
        voc: The datasets.
        out: Folder of the runs.
        changes: Settings to change; `{backbone}` stands for the name of the run's backbone.
    """
    definition = find_run(run)
    backbone = Recipe.load(definition.recipe, (*definition.changes, *changes)).model.backbone
    settings = (*definition.changes, *(change.replace("{backbone}", backbone) for change in changes))
    if definition.teacher is None:
        data = replace(voc.train_aug, limit=definition.limit)
        val = voc.val if definition.limit is None else None
        yield TrainStep(out / run, definition.recipe, settings, data, val)
        return
    yield from training_steps(definition.teacher, voc, out, changes)
    pseudo_labels = PseudoLabelStep(out / definition.teacher, voc.train_aug)
    yield pseudo_labels
    yield TrainStep(out / run, definition.recipe, settings, DataSource(pseudo_labels.folder), None)


def steps_for(results: Iterable[Result], voc: VocSources, out: Path, changes: Sequence[str]) -> Iterator[Step]:
    """Yield the steps that lead to results, run by run: first the training, then the evaluations.

    Args:
        results: Results of a table.
        voc: The datasets.
        out: Folder of the runs.
        changes: Settings to change in every run.
    """
    measurements: dict[str, dict[str, None]] = {}  # by run; dicts keep the order and drop repeats
    for result in results:
        for run in result.runs:
            measurements.setdefault(run, {})[result.measurement] = None
    yielded = set[str]()  # students share the steps of their teacher
    for run, names in measurements.items():
        for step in training_steps(run, voc, out, changes):
            if step.command not in yielded:
                yielded.add(step.command)
                yield step
        yield from (EvaluateStep(out / run, name, voc) for name in names)


def _options(source: DataSource, *, prefix: str = "") -> list[str]:
    split = [f"--{prefix}split", source.split] if source.split else []
    limit = ["--limit", str(source.limit)] if source.limit else []
    return [*split, *limit, *(word for mask in source.masks for word in (f"--{prefix}masks", mask))]
