"""Inference settings of a model, saved in its file: working size, scales, thresholds, what these were chosen on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from safetensors.torch import save_file

from tagseg._files import write_atomically
from tagseg._hub import CHECKPOINT_FILE, MODEL_FILE
from tagseg._json import parse_json, validated
from tagseg.errors import ConfigError, WeightsError, unknown_name
from tagseg.models.base import SMALLEST_SIDE
from tagseg.models.config import ModelConfig
from tagseg.models.pretrained import read_weights
from tagseg.models.serialization import config_from_metadata, read_notes

BACKGROUND_POWER = 3.0
PAPER_THRESHOLD = 0.1
PAPER_SIZE = 500  # the longest side of VOC's images, on which the paper's networks are evaluated
_PAPER_CROP = 448
NATIVE = "native"
WorkingSize = int | Literal["native"]
THRESHOLD_ORIGINS = {  # each with its description
    "paper": "the paper's",
    "tags": "tuned on image tags",
    "masks": "tuned on masks",
    "user": "given by the user",
    "argmax": "not needed: every class may win a pixel",
}
NOTE = "inference"  # key of the settings in a model file's metadata


class ClassRule(Protocol):
    """Rule that decides which classes an image may have."""

    def select(self, scores: Sequence[float]) -> tuple[int, ...]:
        """Indices of the classes to keep, without the background, given the class scores of an image."""


@dataclass(frozen=True)
class ScoreThresholds:
    """Keep the classes whose score reaches its threshold (protocol `predicted-tags`)."""

    thresholds: tuple[float, ...]

    def select(self, scores: Sequence[float]) -> tuple[int, ...]:
        pairs = zip(scores, self.thresholds, strict=True)
        return tuple(index for index, (score, threshold) in enumerate(pairs) if score >= threshold)


@dataclass(frozen=True)
class FixedClasses:
    """Keep these classes whatever their scores (protocol `true-tags`)."""

    indices: tuple[int, ...]

    def select(self, scores: Sequence[float]) -> tuple[int, ...]:  # noqa: ARG002  the other rule reads them
        return self.indices


@dataclass(frozen=True, kw_only=True)
class InferenceSettings:
    """Settings of inference.

    Attributes:
        size: Working size: the longest side in pixels at which the network sees an image at scale 1. `native` is the
            image's own size, in tiles if it is large.
        scales: Scales of test-time augmentation; without it only scale 1 is used.
        flip: Whether test-time augmentation includes the mirrored image.
        thresholds: Lowest score (after the sigmoid) at which a class is kept: one for all classes, or one for each.
        background_power: Exponent that discounts the merged background; 3 for the method, 1 for the others.
        background: Constant background value in place of the model's own; CAM only.
        temperature: Temperature of the softmax (calibration); supervised networks only.
        thresholds_from: Key of `THRESHOLD_ORIGINS` for the thresholds and the background. Results with settings that
            were chosen on masks are no longer results of image tags alone.
    """

    size: WorkingSize = PAPER_SIZE
    scales: tuple[float, ...] = (1.0, 0.75, 1.25, 1.5)
    flip: bool = True
    thresholds: float | tuple[float, ...] = PAPER_THRESHOLD
    background_power: float = BACKGROUND_POWER
    background: float | None = None
    temperature: float = 1.0
    thresholds_from: str = "paper"

    def __post_init__(self) -> None:
        if self.size != NATIVE and not (type(self.size) is int and self.size >= SMALLEST_SIDE):
            raise ConfigError(
                f"size must be {NATIVE!r} or a number of pixels from {SMALLEST_SIDE} for the longest side, "
                f"got {self.size!r}"
            )
        if self.thresholds_from not in THRESHOLD_ORIGINS:
            raise unknown_name("origin of thresholds", self.thresholds_from, THRESHOLD_ORIGINS)
        if not self.scales or not all(0 < scale <= 8 for scale in self.scales):
            raise ConfigError(f"scales must be one or more numbers above 0 and up to 8, got {self.scales}")
        for threshold in self.thresholds if isinstance(self.thresholds, tuple) else (self.thresholds,):
            if not 0 <= threshold <= 1:
                raise ConfigError(f"a threshold is compared with scores from 0 to 1, got {threshold}")
        if self.background_power <= 0:
            raise ConfigError(f"background_power must be above 0, got {self.background_power}")
        if self.temperature <= 0:
            raise ConfigError(f"temperature must be above 0, got {self.temperature}")

    def check_method(self, method: str) -> None:
        """Raise a `ConfigError` if a network of this method has no use for these settings."""
        if self.background is not None and method != "cam":
            raise ConfigError("settings.background is for CAM, whose background is a constant")
        if method == "supervised" and self.background_power != 1:
            raise ConfigError(f"background_power of a supervised network must be 1, got {self.background_power}")
        if method != "supervised" and self.temperature != 1:
            raise ConfigError("settings.temperature is for networks that learned from masks")

    def with_threshold(self, threshold: float) -> "InferenceSettings":
        """Copy with one threshold for all classes, named by the user."""
        return replace(self, thresholds=threshold, thresholds_from="paper" if threshold == PAPER_THRESHOLD else "user")

    def with_size(self, size: WorkingSize | None) -> "InferenceSettings":
        """Copy with another working size; None keeps the model's."""
        return self if size is None else replace(self, size=size)

    def for_tta(self, tta: bool) -> "InferenceSettings":
        """These settings for test-time augmentation, or their single-scale form."""
        return self if tta else replace(self, scales=(1.0,), flip=False)

    def thresholds_per_class(self, num_classes: int) -> tuple[float, ...]:
        """One threshold for each class."""
        if not isinstance(self.thresholds, tuple):
            return (self.thresholds,) * num_classes
        if len(self.thresholds) != num_classes:
            raise ConfigError(
                f"got {len(self.thresholds)} thresholds for {num_classes} classes; give one each, or one number"
            )
        return self.thresholds

    def describe_thresholds(self, num_classes: int) -> str:
        """The thresholds of the classes as text: `0.1`, or `0.05 to 0.3`."""
        thresholds = self.thresholds_per_class(num_classes)
        low, high = min(thresholds), max(thresholds)
        return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"

    def describe_scales(self) -> str:
        """The scales as text: `1`, or `1, 0.75 with flips`."""
        return ", ".join(f"{scale:g}" for scale in self.scales) + (" with flips" if self.flip else "")

    def threshold_rule(self, num_classes: int) -> ScoreThresholds:
        """Rule that keeps the classes whose score reaches its threshold."""
        return ScoreThresholds(self.thresholds_per_class(num_classes))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "InferenceSettings":
        """Settings that `to_json` wrote; missing fields have their defaults, an unknown one fails."""
        values = validated(
            dict[str, Any], parse_json(text, "the inference settings", error=ConfigError), "", error=ConfigError
        )
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown_name("inference setting", name, known)
        return validated(cls, values, "the inference settings", strict=False, error=ConfigError)


def size_for_crop(crop: int) -> int:
    """Working size at which objects are as large as in training crops: 500 for the paper's crop of 448 pixels.

    A crop is most of an image, squeezed into a square; the paper's crops and the longest side of VOC's images give the
    ratio.
    """
    return round(crop * PAPER_SIZE / _PAPER_CROP)


def crop_for_size(size: WorkingSize) -> int:
    """Training crop whose working size this is; the paper's if the size is the image's own."""
    return _PAPER_CROP if isinstance(size, str) else round(size * _PAPER_CROP / PAPER_SIZE)


def default_settings(config: ModelConfig) -> InferenceSettings:
    """The paper's settings for a network; of one that learned from masks every class may win a pixel."""
    is_wide = config.backbone == "wideresnet38"
    settings = InferenceSettings(
        scales=(1.0, 0.5, 1.5, 2.0) if is_wide else (1.0, 0.75, 1.25, 1.5),
        background_power=BACKGROUND_POWER if config.method == "single-stage" else 1.0,
    )
    if config.method == "supervised":
        # The score of a class is its highest probability. To win a pixel it must be more than 1 / (1 + C), over which
        # this is a little on the safe side: the mask is the argmax over all classes, and others cost no time.
        return replace(settings, thresholds=1 / (2 + config.num_classes), thresholds_from="argmax")
    return settings


def read_settings(path: str | Path, config: ModelConfig) -> InferenceSettings:
    """Settings in a model's file, or the paper's if it has none."""
    return settings_from_notes(read_notes(path), path, config)


def settings_from_notes(notes: Mapping[str, str], path: str | Path, config: ModelConfig) -> InferenceSettings:
    """Settings in the metadata of a model's file, whose path is for the error, or the paper's if it has none."""
    if NOTE not in notes:
        return default_settings(config)
    try:
        settings = InferenceSettings.from_json(notes[NOTE])
        settings.thresholds_per_class(config.num_classes)
    except ConfigError as error:
        raise WeightsError(f"{path} is not a model of this version of tagseg: {error.problem}", error.advice) from None
    return settings


def write_settings(path: str | Path, settings: InferenceSettings) -> None:
    """Replace the settings in a model's file; the rest of the file stays."""
    if Path(path).name == CHECKPOINT_FILE:
        raise WeightsError(f"{path}: training resumes from this file, so it is not changed", f"name {MODEL_FILE}")
    tensors, metadata = read_weights(Path(path))
    settings.thresholds_per_class(config_from_metadata(metadata, path).num_classes)
    write_atomically(Path(path), lambda part: save_file(tensors, part, {**metadata, NOTE: settings.to_json()}))
