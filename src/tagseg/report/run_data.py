"""Data of a run, read from its folder; parts that do not exist yet are None or empty."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagseg._hub import MODEL_FILE
from tagseg.errors import ConfigError, DataError
from tagseg.evaluation.result import EVALUATION_FILE, Evaluation
from tagseg.predict.predictor import Predictor, load
from tagseg.training.checkpoint import TrainState, read_train_state
from tagseg.training.logging import read_metrics
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import read_config


@dataclass(frozen=True)
class RunData:
    """A run.

    Attributes:
        folder: Folder of the run.
        config: Content of config.json.
        recipe: Resolved recipe.
        classes: Class names without the background.
        metrics: Lines of metrics.jsonl.
        train_state: State of the training; None before the first checkpoint.
        predictor: Trained model; None before the first epoch that can be its checkpoint has ended, or if not asked for.
    """

    folder: Path
    config: dict[str, Any]
    recipe: Recipe
    classes: tuple[str, ...]
    metrics: list[dict[str, Any]]
    train_state: TrainState | None
    predictor: Predictor | None

    @property
    def is_cam(self) -> bool:
        """Whether this is the CAM baseline, which is trained on image-level labels alone."""
        return self.recipe.model.method == "cam"

    @property
    def is_supervised(self) -> bool:
        """Whether the run learns from masks."""
        return self.recipe.model.method == "supervised"

    @property
    def makes_pseudo_labels(self) -> bool:
        """Whether the run learns from pseudo labels that it makes itself."""
        return self.recipe.model.method == "single-stage"

    @property
    def refines(self) -> bool:
        """Whether masks are refined before they become pseudo labels."""
        return self.makes_pseudo_labels and self.recipe.pseudo_labels.refine != "none"

    @property
    def classification_epochs(self) -> int:
        """Number of first epochs that train the classification alone; 0 for runs that have no second phase."""
        return self.recipe.training.classification_epochs if self.makes_pseudo_labels else 0

    @property
    def checkpoint_epoch(self) -> int | None:
        """Epoch of the model's weights, counted from 1."""
        return (self.train_state.model_epoch or None) if self.train_state else None

    @property
    def checkpoint_name(self) -> str:
        """Which checkpoint the model is, such as `best checkpoint: epoch 3`."""
        if self.checkpoint_epoch is None:
            return "no checkpoint yet"
        return f"{self.recipe.validation.checkpoint} checkpoint: epoch {self.checkpoint_epoch}"

    def metrics_of(self, kind: str) -> list[dict[str, Any]]:
        """Metrics of one kind, `train` or `validation`, in order."""
        return [line for line in self.metrics if line.get("kind") == kind]


def read_run(folder: Path, *, load_model: bool = True) -> RunData:
    """Read the folder of a run.

    Args:
        folder: Folder of the run.
        load_model: Load the trained model, if there is one.

    Raises:
        ConfigError: If this is not the folder of a run.
    """
    config = read_config(folder)
    try:
        recipe, classes = Recipe.parse(config["recipe"]), tuple(str(name) for name in config["classes"])
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: its configuration is incomplete or damaged ({error!r})") from None
    return RunData(
        folder=folder,
        config=config,
        recipe=recipe,
        classes=classes,
        metrics=[line for line in read_metrics(folder) if _is_complete(line)],
        train_state=read_train_state(folder),
        predictor=load(folder) if load_model and (folder / MODEL_FILE).is_file() else None,
    )


def read_evaluation(run: RunData) -> Evaluation | None:
    """Return the evaluation in the run folder, if there is one."""
    path = run.folder / EVALUATION_FILE
    if not path.is_file():
        return None
    try:
        return Evaluation.from_json(path.read_text(encoding="utf-8"))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: not a result of an evaluation ({error})", "evaluate again or delete it") from None


def _is_complete(line: object) -> bool:
    """Whether a line of metrics.jsonl has a step and an epoch, both counted from 1."""
    counts = [line.get(key) for key in ("step", "epoch")] if isinstance(line, dict) else [None]
    return all(isinstance(count, int) and count > 0 for count in counts)
