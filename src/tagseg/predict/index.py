"""Content of predictions.json; docs/schemas/predictions.schema.json is its JSON schema.

`python -m tools.schemas` writes the schema after a change of these models.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tagseg._version import __version__
from tagseg.predict.engine import TRUE_TAGS
from tagseg.predict.prediction import Prediction
from tagseg.predict.settings import InferenceSettings


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelRecord(_Record):
    """A model."""

    name: str = Field(description="Name of the run folder or of the model file.")
    method: str
    backbone: str
    weights: str | None = Field(default=None, description="Hash of the weights.")


class RunRecord(_Record):
    """What all images of a predictions.json have in common."""

    version: Literal[1] = Field(default=1, description="Version of this format.")
    model: ModelRecord
    classes: tuple[str, ...] = Field(description="Class names: the k-th one has the value k in a mask, from 1.")
    settings: InferenceSettings = Field(description="Working size, scales, thresholds and what these were chosen on.")
    protocol: Literal["predicted-tags", "true-tags"] = Field(
        description="Whether the scores decided which classes an image may have, or tags that were given."
    )
    crf: bool = Field(description="Whether a dense CRF refined the masks.")

    @classmethod
    def of(cls, prediction: Prediction) -> "RunRecord":
        """Record of a prediction's model and settings."""
        return cls.model_validate(
            {
                "model": dict(prediction.model),
                "classes": tuple(prediction.scores),
                "settings": prediction.settings,
                "protocol": prediction.protocol,
                "crf": prediction.crf,
            }
        )


class SizeRecord(_Record):
    """Size of an image and of its mask, in pixels."""

    width: int
    height: int


class ClassRecord(_Record):
    """A class that has a pixel in a mask."""

    name: str
    value: int = Field(description="Its value in the mask.")
    area: int = Field(description="Number of its pixels.")
    share: float = Field(description="Its share of the image's pixels.")
    box: tuple[int, int, int, int] = Field(
        description="x0, y0, x1, y1 around all its pixels; x1 and y1 are the first column and row after them."
    )
    confidence: float = Field(description="Mean confidence of its pixels, from 0 to 1.")


class ThresholdRecord(_Record):
    """A class with its score and its threshold."""

    name: str
    score: float
    threshold: float


class ImageRecord(_Record):
    """An image and what was written for it."""

    name: str = Field(description="Name of the image; its files begin with it. No two images have the same.")
    path: str | None = Field(
        description="File, member of a zip (photos.zip:cats/1.jpg), URL, frame (clip.mp4#t=12.5), or - for stdin."
    )
    size: SizeRecord
    classes: tuple[ClassRecord, ...]
    scores: dict[str, float] = Field(description="Score of each class, from 0 to 1.")
    confidence: float = Field(description="Mean confidence of the image's pixels, from 0 to 1.")
    uncertainty: float = Field(description="How wrong the mask may be, from 0 to 1: 1 - its expected IoU.")
    nearest_threshold: ThresholdRecord | None = Field(
        description="The class whose presence is least certain; null if tags decided."
    )
    tags: tuple[str, ...] | None = Field(default=None, description="Tags that the mask was limited to.")
    scales: tuple[float, ...] | None = Field(
        default=None, description="Scales that were used, if the image is too large for those of the settings."
    )
    files: dict[str, str] = Field(description="The files that were written, by kind, relative to predictions.json.")

    @classmethod
    def of(cls, prediction: Prediction, name: str, files: dict[str, str], run: RunRecord) -> "ImageRecord":
        """Record of a prediction whose files are written."""
        values = {key: value for key, value in prediction.summary().items() if key in cls.model_fields}
        scales = prediction.settings.scales
        return cls.model_validate(
            {
                **values,
                "name": name,
                "tags": prediction.allowed_classes if prediction.protocol == TRUE_TAGS else None,
                "scales": None if scales == run.settings.scales else scales,
                "files": files,
            }
        )


class PredictionIndex(RunRecord):
    """The predictions in a folder."""

    tagseg: str = Field(default=__version__, description="Version of tagseg that wrote the file.")
    complete: bool = Field(description="False if the job was interrupted.")
    images: tuple[ImageRecord, ...]
    least_certain: tuple[str, ...] = Field(description="Names of the images to look at first, the least certain first.")
    legend: str | None = Field(
        default=None, description="The colors of the overlays, relative to predictions.json, if it was written."
    )
    skipped: tuple[str, ...] = Field(description="Why each image that could not be read was skipped.")
    left_out: dict[str, tuple[str, ...]] = Field(
        description="Files that look like images but are not read, by what to do about them."
    )

    @property
    def run(self) -> RunRecord:
        """The part that all images have in common."""
        return RunRecord(**{name: getattr(self, name) for name in RunRecord.model_fields})
