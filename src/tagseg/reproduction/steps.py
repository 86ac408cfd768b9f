"""The steps to a table: each is a command of tagseg, and is left out where its work is done."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tagseg.api import evaluate, train
from tagseg.data import DataSource
from tagseg.evaluation.result import EVALUATION_FILE
from tagseg.models.files import MODEL_FILE, read_notes
from tagseg.predict.settings import NOTE, InferenceSettings
from tagseg.reproduction.folder import VocSources
from tagseg.reproduction.measurements import MEASUREMENTS, measured_model, measurement_file
from tagseg.reproduction.table import Figure
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import read_config


class Step(Protocol):
    """A piece of work that a person could do by one command."""

    @property
    def command(self) -> str:
        """The command, for a shell."""

    @property
    def done(self) -> bool:
        """Whether the work is done already."""

    def do(self) -> None:
        """Do the work, or go on with it."""


@dataclass(frozen=True)
class Training:
    """Train a run; its folder has its recipe's name."""

    folder: Path
    changes: tuple[str, ...]
    voc: VocSources

    @property
    def command(self) -> str:
        learn, choose = _options(self.voc.train_aug), _options(self.voc.val, prefix="val-")
        changes = [word for change in self.changes for word in ("--set", change)]
        words = [*learn, "--val", self.voc.val.path, *choose, "--recipe", self.folder.name, *changes]
        return shlex.join(["tagseg", "train", self.voc.train_aug.path, *words, "--out", str(self.folder)])

    @property
    def done(self) -> bool:
        """Whether the run of this very recipe is complete: the thresholds, which come last, are in the model's file."""
        model = self.folder / MODEL_FILE
        if not model.is_file():
            return False
        notes = read_notes(model)
        if NOTE not in notes or InferenceSettings.from_json(notes[NOTE]).thresholds_from != "tags":
            return False
        return Recipe.parse(read_config(self.folder)["recipe"]) == Recipe.load(self.folder.name, self.changes)

    def do(self) -> None:
        train(self.voc.train_aug, self.folder, recipe=self.folder.name, changes=self.changes, val=self.voc.val)


@dataclass(frozen=True)
class Measuring:
    """Measure a run in one way."""

    folder: Path
    name: str
    voc: VocSources

    @property
    def command(self) -> str:
        how, source = MEASUREMENTS[self.name], self._source
        words = [str(measured_model(self.folder, self.name)), source.path, *_options(source)]
        words += ["--tta"] * how.tta + ["--crf"] * how.crf
        words += [] if how.threshold is None else ["--threshold", f"{how.threshold:g}"]
        words += ["--out", str(self.folder)] * how.last
        move = ["mv", str(self.folder / EVALUATION_FILE), str(measurement_file(self.folder, self.name))]
        return f"{shlex.join(['tagseg', 'evaluate', *words])} && {shlex.join(move)}"

    @property
    def done(self) -> bool:
        return measurement_file(self.folder, self.name).is_file()

    def do(self) -> None:
        how = MEASUREMENTS[self.name]
        model = measured_model(self.folder, self.name)
        evaluate(model, self._source, tta=how.tta, crf=how.crf, threshold=how.threshold, out=self.folder)
        (self.folder / EVALUATION_FILE).replace(measurement_file(self.folder, self.name))

    @property
    def _source(self) -> DataSource:
        return self.voc.val if MEASUREMENTS[self.name].images == "val" else self.voc.train


def training(run: str, voc: VocSources, out: Path, changes: Sequence[str]) -> Training:
    """The step that trains a run; `{backbone}` in a change becomes the name of the run's backbone."""
    backbone = Recipe.load(run, changes).model.backbone
    return Training(out / run, tuple(change.replace("{backbone}", backbone) for change in changes), voc)


def steps_to(figures: Iterable[Figure], voc: VocSources, out: Path, changes: Sequence[str]) -> Iterator[Step]:
    """The steps to figures, run by run: first train it, then measure it.

    Args:
        figures: what is wanted.
        voc: the images.
        out: the folder of the runs' folders.
        changes: settings to change in every run.
    """
    wanted: dict[str, dict[str, None]] = {}  # in the order in which they are asked for, without repeats
    for figure in figures:
        wanted.setdefault(figure.run, {})[figure.file] = None
    for run, files in wanted.items():
        yield training(run, voc, out, changes)
        yield from (Measuring(out / run, file, voc) for file in files)


def _options(source: DataSource, *, prefix: str = "") -> list[str]:
    split = [f"--{prefix}split", source.split] if source.split else []
    return [*split, *(word for mask in source.masks for word in (f"--{prefix}masks", mask))]
