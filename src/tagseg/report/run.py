"""What a run's folder holds, read once; parts that are not there yet are None or empty."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagseg.models.files import MODEL_FILE
from tagseg.predict.predictor import Predictor, load
from tagseg.training.checkpoint import Progress, read_progress
from tagseg.training.journal import read_journal
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import read_config

NO_MODEL_YET = "There is no model yet: an epoch that can be kept has to end first."


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        folder: where it is.
        config: the whole of config.json.
        recipe: its settings.
        classes: the class names, without background.
        journal: the lines of metrics.jsonl.
        progress: where the training stands; None before the first checkpoint.
        predictor: the model that was kept; None before an epoch that can be kept has ended.
    """

    folder: Path
    config: dict[str, Any]
    recipe: Recipe
    classes: tuple[str, ...]
    journal: list[dict[str, Any]]
    progress: Progress | None
    predictor: Predictor | None

    @property
    def is_cam(self) -> bool:
        """Whether this is the baseline, which trains no masks."""
        return self.recipe.model.method == "cam"

    @property
    def refines(self) -> bool:
        """Whether masks are refined before they become pseudo labels."""
        return not self.is_cam and self.recipe.pseudo_labels.refine != "none"

    @property
    def kept_epoch(self) -> int | None:
        """The epoch whose model was kept, counted from 1."""
        return (self.progress.kept_epoch or None) if self.progress else None

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The journal's lines of one kind."""
        return [line for line in self.journal if line.get("kind") == kind]


def read_run(folder: Path) -> Run:
    """Read a run's folder; one that is none fails and says what to give."""
    config = read_config(folder)
    return Run(
        folder=folder,
        config=config,
        recipe=Recipe.parse(config["recipe"]),
        classes=tuple(config["classes"]),
        journal=read_journal(folder),
        progress=read_progress(folder),
        predictor=load(folder) if (folder / MODEL_FILE).is_file() else None,
    )
