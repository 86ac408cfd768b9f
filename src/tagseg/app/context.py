"""What every tab and route of the page works with."""

from dataclasses import dataclass, field
from pathlib import Path

from tagseg.app.model_queue import ModelQueue
from tagseg.app.training_process import TrainingProcess
from tagseg.predict.predictor import Predictor


@dataclass(frozen=True)
class Context:
    """The model and the run of the page.

    Attributes:
        model: The model, loaded once. Only jobs of the queue may use it.
        model_path: What the user named: a run folder, a model file, or `default`.
        run: The run folder that the page shows; None if the page was opened for a model alone.
        queue: Jobs that need the model, one at a time.
        is_local: Whether the page is served to this machine alone.
        training: The training that the page started, if any.
    """

    model: Predictor
    model_path: str
    run: Path | None
    queue: ModelQueue
    is_local: bool = True
    training: TrainingProcess = field(default_factory=TrainingProcess)
