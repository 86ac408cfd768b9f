"""Metrics of a run: means of the losses, `metrics.jsonl`, the progress display, and TensorBoard."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from tagseg._files import write_text, writing
from tagseg._progress import ProgressBar
from tagseg.data.dataset import ImageDataset
from tagseg.errors import ConfigError
from tagseg.models import Network
from tagseg.models.base import enlarge
from tagseg.training.objective import Losses, refine_masks_of, threshold_masks
from tagseg.training.pseudo_labels import UNLABELED
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import METRICS_FILE
from tagseg.training.transforms import ValidationImages

TENSORBOARD_FOLDER = "tensorboard"
TENSORBOARD_IMAGES = 4


class MetricsLog:
    """Writer of `metrics.jsonl`, with one JSON object a line.

    Args:
        folder: Folder of the run.
        step: Step to resume from; later lines of an interrupted run are removed.
    """

    def __init__(self, folder: Path, *, step: int = 0) -> None:
        self.path = folder / METRICS_FILE
        lines = [line for line in read_metrics(folder) if line["step"] <= step] if step else []
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_text(self.path, text)

    def write(self, kind: str, step: int, **values: float | int | str | None) -> None:
        """Append a line; NaN, which JSON does not have, becomes null."""
        clean = {
            key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()
        }
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **clean}) + "\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Lines of a run's `metrics.jsonl`, without damaged ones, which a crash may leave."""
    path = folder / METRICS_FILE
    lines: list[dict[str, Any]] = []
    for text in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else ():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if _is_metrics(line):
            lines.append(line)
    return lines


def _is_metrics(line: object) -> bool:
    """Whether a line has a kind, a step, and otherwise numbers."""
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str) or type(line.get("step")) is not int:
        return False
    return all(value is None or isinstance(value, int | float) for key, value in line.items() if key != "kind")


class RunningMeans:
    """Means of the losses since they were last taken; until then nothing waits for the GPU.

    They are means over all processes, all of which have to call each method.

    Args:
        accelerator: Processes of the run.
        rows: Losses of batches in an earlier session of the run that have not been taken.
    """

    def __init__(self, accelerator: Accelerator, rows: list[list[float]]) -> None:
        self._accelerator = accelerator
        self._losses: list[Tensor] = []
        self._earlier, self._num_resumed, self._start = list(rows), len(rows), time.monotonic()

    def add(self, losses: Losses) -> None:
        """Add the losses of a batch."""
        values = (losses.total, losses.classification, losses.segmentation, losses.labeled_share)
        self._losses.append(torch.stack([value.detach().float() for value in values]))

    def rows(self) -> list[list[float]]:
        """Losses of the batches since they were last taken."""
        if self._losses:
            self._earlier += self._accelerator.reduce(torch.stack(self._losses), "mean").tolist()
            self._losses = []
        return self._earlier

    def first_not_finite(self, step: int, accumulation: int) -> int | None:
        """First step with a loss that is not finite; the last batch is of `step`, which has `accumulation` batches."""
        rows = self.rows()
        bad = next((index for index, (total, *_) in enumerate(rows) if not math.isfinite(total)), None)
        return None if bad is None else step - (len(rows) - 1 - bad) // accumulation

    def take(self, images_per_batch: float) -> dict[str, float]:
        """Means of the losses since they were last taken, and the speed."""
        rows = self.rows()
        images = images_per_batch * (len(rows) - self._num_resumed)
        total, classification, segmentation, labeled_share = torch.tensor(rows).mean(0).tolist()
        seconds = time.monotonic() - self._start
        self._earlier, self._num_resumed, self._start = [], 0, time.monotonic()
        return {
            "loss": total,
            "classification": classification,
            "segmentation": segmentation,
            "labeled_share": labeled_share,
            "images_per_second": images / max(seconds, 1e-9),  # a coarse clock may stand still
        }


class RunProgress(ProgressBar):
    """Progress of a run's steps, with an estimate of the time until the model is ready.

    Until a validation has been timed, its images are taken to cost half as much as those of a step.

    Args:
        recipe: Settings of the run.
        steps_per_epoch: Steps of an epoch.
        num_validation: Number of validation images.
        done: Steps that were done before.
        quiet: Show nothing.
    """

    def __init__(
        self, recipe: Recipe, steps_per_epoch: int, num_validation: int, *, done: int = 0, quiet: bool = False
    ) -> None:
        settings = recipe.training
        self._epochs, self._steps_per_epoch = settings.epochs, steps_per_epoch
        self._first_epochs = settings.classification_epochs if recipe.model.method == "single-stage" else 0
        self._every, self._num_batches = recipe.validation.every, num_validation / settings.batch_size
        self._validation_seconds: float | None = None
        self._metrics = ""
        super().__init__("Training", settings.epochs * steps_per_epoch, done=done, quiet=quiet)

    def describe(self, images: int, batch_size: int) -> str:
        """What the run will do, in words."""
        tags_alone = f", the first {self._first_epochs} on tags alone" if self._first_epochs else ""
        return (
            f"{self._epochs} epochs of {images:,} images{tags_alone}: {self.total:,} steps of {batch_size} images "
            f"({self._steps_per_epoch} an epoch)"
        )

    def seconds_left(self) -> float:
        """Estimate of the time for the steps, the validations, and tuning on the validation images at the end."""
        remaining = range(self._times[-1][1] // self._steps_per_epoch + 1, self._epochs + 1)
        passes = 1 + sum(is_validated(epoch, self._every, self._epochs) for epoch in remaining)
        seconds = self._validation_seconds
        if seconds is None:
            seconds = self.seconds_per_item * self._num_batches / 2
        return super().seconds_left() + passes * seconds

    def step(self, done: int, metrics: str | None = None) -> None:
        """Show that a step is done, with its metrics or with those of an earlier one."""
        epoch = (done - 1) // self._steps_per_epoch + 1
        self.title = f"Epoch {epoch}/{self._epochs}, step"
        self._metrics = metrics or self._metrics
        self.text = self._metrics
        if epoch <= self._first_epochs:
            self.text += f"{', ' if self.text else ''}epochs after {self._first_epochs} will take longer"
        self.update(done)
        if done == self._first_epochs * self._steps_per_epoch:
            self.forget_pace()

    @contextmanager
    def validation(self) -> Iterator[None]:
        """Time a validation, which the pace of the steps leaves out."""
        start = time.monotonic()
        yield
        self._validation_seconds = time.monotonic() - start
        self.leave_out(self._validation_seconds)


def is_validated(epoch: int, every: int, epochs: int) -> bool:
    """Whether an epoch, counted from 1, ends with a validation."""
    return epoch % every == 0 or epoch == epochs


class TensorBoardWriter:
    """Writes the metrics, and masks of a few validation images as in the paper's Fig. 6, after each epoch.

    Args:
        out: Folder of the run.
        data: Validation images.
        recipe: Settings of the run.
    """

    def __init__(self, out: Path, data: ImageDataset, recipe: Recipe) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoard is not installed", "install tagseg[tracking], or train without it") from None
        self._folder, self._recipe = out, recipe
        self._writer = SummaryWriter(out / TENSORBOARD_FOLDER)
        # Metrics up to the last validation were written by an earlier session of the run.
        self._step = max((line["step"] for line in read_metrics(out) if line["kind"] == "validation"), default=-1)
        samples = [ValidationImages(data, recipe.transforms)[i] for i in range(min(TENSORBOARD_IMAGES, len(data)))]
        self._images = torch.stack([image for image, _ in samples]).float() / 255
        self._labels = torch.stack([labels for _, labels in samples])

    def __call__(self, network: Network, epoch: int) -> None:
        """Write the metrics since the last call, and the masks of the network."""
        lines = [line for line in read_metrics(self._folder) if line["step"] > self._step]
        for line in lines:
            for name, value in line.items():
                if name not in ("kind", "step", "epoch", "session", "processes") and value is not None:
                    self._writer.add_scalar(f"{line['kind']}/{name}", value, line["step"])
        self._step = max((line["step"] for line in lines), default=self._step)
        self._writer.add_images("input | prediction | refinement | pseudo labels", self._panels(network), epoch)
        self._writer.flush()

    def close(self) -> None:
        """End the writer's thread."""
        self._writer.close()

    @torch.no_grad()
    def _panels(self, network: Network) -> Tensor:
        """Stages of each image side by side, [B, 3, H, 4 W], or [B, 3, H, 2 W] without pseudo labels."""
        device = next(network.parameters()).device
        images, labels = self._images.to(device), self._labels.to(device)
        size = (images.shape[-2], images.shape[-1])
        was_training = network.training
        out = network.eval()(network.normalize(images), full_size=False)
        network.train(was_training)
        panels = [images, _color(enlarge(out.masks, size).argmax(1), images)]
        if self._recipe.model.method == "single-stage":
            refined = refine_masks_of(images, out.masks, self._recipe.pseudo_labels, tokens=out.tokens)
            panels.append(_color(enlarge(refined, size).argmax(1), images))
            panels.append(_color(threshold_masks(refined, labels, images, self._recipe.pseudo_labels), images))
        return torch.cat(panels, dim=-1).cpu()


def _color(classes: Tensor, images: Tensor) -> Tensor:
    """Classes as colors over the images; ignored pixels are dimmed."""
    palette = torch.rand(int(classes.max()) + 2, 3, generator=torch.Generator().manual_seed(1)).to(images)
    colors = palette[classes.clamp_min(0)].movedim(-1, 1)
    opacity = (classes > 0)[:, None] * 0.7
    overlay = images * (1 - opacity) + colors * opacity
    return torch.where((classes == UNLABELED)[:, None], 0.35 * images, overlay)
