"""Result of an evaluation: metrics per class and protocol, as a table and as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tagseg._files import write_text
from tagseg.evaluation.metrics import ConfusionMatrix, Floats, mean
from tagseg.predict.settings import THRESHOLD_ORIGINS, InferenceSettings

EVALUATION_FILE = "evaluation.json"
_METRICS = ("iou", "precision", "recall")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Agreement of masks with the ground truth, under each protocol.

    Attributes:
        class_names: Class names, without the background.
        confusion: Confusion matrix of each protocol: `predicted-tags`, where the model's scores decide which classes an
            image may have, and `true-tags`, where its tags do. Numbers of different protocols cannot be compared.
        images: Number of images that were evaluated.
        without_masks: Number of images of the dataset that have no mask.
        settings: Scales, thresholds and what they were chosen on.
        crf: Whether a dense CRF refined the masks.
        model: Name, method and backbone of the model.
        seconds: Duration, from image files to metrics.
        device: Device that it ran on.
    """

    class_names: tuple[str, ...]
    confusion: Mapping[str, ConfusionMatrix]
    images: int
    without_masks: int
    settings: InferenceSettings
    crf: bool
    model: Mapping[str, str]
    seconds: float
    device: str

    def mean_iou(self, protocol: str, *, background: bool = True) -> float:
        """Mean IoU over the classes that occur in the ground truth or the prediction.

        Args:
            protocol: `predicted-tags` or `true-tags`.
            background: Whether it counts as a class, as in PASCAL VOC.
        """
        return mean(self.confusion[protocol].iou[0 if background else 1 :])

    @property
    def caveat(self) -> str:
        """Warning that belongs with the numbers; empty if there is none."""
        if self.settings.thresholds_from == "masks":
            return "TUNED ON MASKS: these settings were chosen on ground-truth masks, not on image tags alone"
        return ""

    def to_json(self) -> str:
        """JSON of everything; an undefined metric is null."""
        return json.dumps(
            {
                "model": dict(self.model),
                "images": self.images,
                "images_without_masks": self.without_masks,
                "crf": self.crf,
                "settings": asdict(self.settings),
                "caveat": self.caveat,
                "seconds": self.seconds,
                "device": self.device,
                "classes": list(self.class_names),
                "protocols": {name: self._metrics(matrix) for name, matrix in self.confusion.items()},
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> "Evaluation":
        """Evaluation that `to_json` wrote; the metrics follow from the confusion matrices."""
        values = json.loads(text)
        classes = 1 + len(values["classes"])
        return cls(
            class_names=tuple(values["classes"]),
            confusion={
                name: ConfusionMatrix(classes, np.array(metrics["confusion"], dtype=np.int64))
                for name, metrics in values["protocols"].items()
            },
            images=values["images"],
            without_masks=values["images_without_masks"],
            settings=InferenceSettings.from_json(json.dumps(values["settings"])),
            crf=values["crf"],
            model=values["model"],
            seconds=values["seconds"],
            device=values["device"],
        )

    def save(self, folder: str | Path) -> Path:
        """Write evaluation.json into a folder, which is created if it does not exist."""
        path = Path(folder) / EVALUATION_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.to_json() + "\n")
        return path

    def print(self, console: Console | None = None) -> None:
        """Print a table: one row per class, the protocols side by side."""
        console = console or Console()
        table = Table(title=f"{self.model['name']}: {self.model['method']} on {self.model['backbone']}")
        table.add_column("class")
        for protocol in self.confusion:
            # A protocol's name is never truncated: numbers of the two must not be mixed up.
            table.add_column(f"{protocol}\nIoU", justify="right", style="bold", min_width=len(protocol))
            table.add_column("\nprec.", justify="right")
            table.add_column("\nrecall", justify="right")
        columns = [getattr(matrix, metric) for matrix in self.confusion.values() for metric in _METRICS]
        for index, name in enumerate(("background", *self.class_names)):
            table.add_row(name, *(_percent(column[index]) for column in columns))
        table.add_section()
        table.add_row("mean", *(_percent(mean(column)) for column in columns), style="bold")
        table.add_row("mean without\nbackground", *(_percent(mean(column[1:])) for column in columns))
        console.print(table)
        for line in self._notes():
            console.print(line, highlight=False)
        if self.caveat:
            console.print(self.caveat, style="bold white on red")

    def _notes(self) -> list[str]:
        settings = self.settings
        thresholds = settings.describe_thresholds(len(self.class_names))
        without = f" ({self.without_masks} more have no mask)" if self.without_masks else ""
        notes = [
            f"{self.images} images{without}; size {settings.size}; "
            f"scales {settings.describe_scales()}; CRF {'on' if self.crf else 'off'}; "
            f"thresholds {thresholds} ({THRESHOLD_ORIGINS[settings.thresholds_from]})",
            f"{self.seconds:.1f} s on {self.device}, {self.images / max(self.seconds, 1e-9):.1f} images/s",
        ]
        for protocol, matrix in self.confusion.items():
            if matrix.num_counted < matrix.num_classes:
                notes.append(
                    f"{protocol}: {matrix.num_counted} of {matrix.num_classes} classes occur and count towards the "
                    "mean IoU"
                )
        return notes

    def _metrics(self, matrix: ConfusionMatrix) -> dict[str, Any]:
        names = ("background", *self.class_names)
        per_class = {metric: getattr(matrix, metric) for metric in _METRICS}
        return {
            "mean": {metric: _number(mean(values)) for metric, values in per_class.items()},
            "mean_without_background": {metric: _number(mean(values[1:])) for metric, values in per_class.items()},
            "classes_counted": matrix.num_counted,
            "per_class": {
                name: {metric: _number(values[index]) for metric, values in per_class.items()}
                for index, name in enumerate(names)
            },
            "confusion": matrix.counts.tolist(),
        }


def _number(value: Floats | float) -> float | None:
    return None if np.isnan(value) else float(value)


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.1f}"
