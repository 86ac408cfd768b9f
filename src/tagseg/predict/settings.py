"""How a model is to be used: scales, thresholds, and what these were chosen from. It travels in the model's file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from tagseg.errors import unknown_name
from tagseg.models.config import ModelConfig
from tagseg.models.files import CHECKPOINT_FILE, MODEL_FILE, load_model, read_notes, save_model
from tagseg.predict.multiscale import BACKGROUND_POWER

PAPER_THRESHOLD = 0.1
SOURCES = ("paper", "tags", "masks", "user")
NOTE = "inference"


@dataclass(frozen=True, kw_only=True)
class InferenceSettings:
    """The settings of inference.

    Attributes:
        scales: the factors by which the image is enlarged for the careful prediction; the quick one has only 1.
        flip: whether the careful prediction also looks at the mirrored image.
        thresholds: the least score (after the sigmoid) with which a class is kept: one for all classes, or one each.
        background_power: the exponent that discounts the merged background; 3 for the method, 1 for CAM.
        background: the background's constant value in place of the model's own; only CAM has one.
        thresholds_from: where the thresholds and the background come from: the `paper`, validation `tags`, `masks`, or
            the `user`. What was chosen on masks is no longer a result of image tags alone.
    """

    scales: tuple[float, ...] = (1.0, 0.75, 1.25, 1.5)
    flip: bool = True
    thresholds: float | tuple[float, ...] = PAPER_THRESHOLD
    background_power: float = BACKGROUND_POWER
    background: float | None = None
    thresholds_from: str = "paper"

    def __post_init__(self) -> None:
        if self.thresholds_from not in SOURCES:
            raise unknown_name("source of thresholds", self.thresholds_from, SOURCES)
        if not self.scales or not all(0 < scale <= 8 for scale in self.scales):
            raise ValueError(f"scales must be one or more numbers above 0 and up to 8, got {self.scales}")
        for threshold in self.thresholds if isinstance(self.thresholds, tuple) else (self.thresholds,):
            if not 0 <= threshold <= 1:
                raise ValueError(f"thresholds are compared with scores from 0 to 1, got {threshold}")
        if self.background_power <= 0:
            raise ValueError(f"background_power must be above 0, got {self.background_power}")

    def with_threshold(self, threshold: float) -> "InferenceSettings":
        """The same with one threshold for all classes, named by the caller."""
        return replace(self, thresholds=threshold, thresholds_from="paper" if threshold == PAPER_THRESHOLD else "user")

    @property
    def single_scale(self) -> "InferenceSettings":
        """The same with single scale at the image, at its own size."""
        return replace(self, scales=(1.0,), flip=False)

    def threshold_list(self, classes: int) -> list[float]:
        """One threshold for each class."""
        if not isinstance(self.thresholds, tuple):
            return [self.thresholds] * classes
        if len(self.thresholds) != classes:
            raise ValueError(
                f"got {len(self.thresholds)} thresholds for {classes} classes; give one each, or one number"
            )
        return list(self.thresholds)

    def kept_classes(self, scores: Sequence[float]) -> tuple[int, ...]:
        """The classes whose score reaches its threshold, counted from 0 without the background."""
        thresholds = self.threshold_list(len(scores))
        return tuple(
            k for k, (score, threshold) in enumerate(zip(scores, thresholds, strict=True)) if score >= threshold
        )

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "InferenceSettings":
        """The settings that `to_json` wrote; an unknown one fails and names the nearest."""
        values: dict[str, Any] = json.loads(text)
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown_name("inference setting", name, known)
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists})


def default_settings(config: ModelConfig) -> InferenceSettings:
    """The paper's settings for a network."""
    wide = config.backbone == "wideresnet38"
    return InferenceSettings(
        scales=(1.0, 0.5, 1.5, 2.0) if wide else (1.0, 0.75, 1.25, 1.5),
        background_power=1.0 if config.method == "cam" else BACKGROUND_POWER,
    )


def read_settings(path: str | Path, config: ModelConfig) -> InferenceSettings:
    """The settings in a model's file, or the paper's where it has none."""
    notes = read_notes(path)
    return InferenceSettings.from_json(notes[NOTE]) if NOTE in notes else default_settings(config)


def write_settings(path: str | Path, settings: InferenceSettings) -> None:
    """Put the settings into a model's file, in place of those that it has; the rest of the file stays as it is."""
    if Path(path).name == CHECKPOINT_FILE:
        raise ValueError(f"{path}: a run goes on from this file, so nothing is written to it; name {MODEL_FILE}")
    model = load_model(path)
    settings.threshold_list(model.config.classes)
    save_model(model, path, notes={**read_notes(path), NOTE: settings.to_json()})
