"""The options of a network: the recipe's [model] section, the network's `config`, and a saved file's metadata."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tagseg.errors import ConfigError, TagsegError, unknown_name

# Fields that follow from the data or from a file of weights, and that a recipe cannot set.
SET_BY_BUILDING = ("class_names", "in_channels", "stride_on")


class Settings(BaseModel):
    """Frozen settings; unknown names are refused, and every field has a docstring."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate settings.

        Raises:
            ConfigError: It names the first invalid setting in one line.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise _first_error(cls, error) from None

    @classmethod
    def setting_names(cls) -> list[str]:
        """Names of all settings; those of nested sections as `section.field`."""
        names = []
        for name, field in cls.model_fields.items():
            section = field.annotation
            if isinstance(section, type) and issubclass(section, Settings):
                names += [f"{name}.{nested}" for nested in section.setting_names()]
            else:
                names.append(name)
        return names


class ModelConfig(Settings):
    """Options of a network.

    None means automatic; `resolve` replaces it, so that a network's own `config` and a saved one leave nothing None.
    """

    method: Literal["single-stage", "cam", "supervised"] = "single-stage"
    """Method: single-stage (the paper's) or cam (the baseline) from image tags, or supervised from masks."""
    architecture: str = "segmenter"
    """Architecture of supervised: segmenter, or one of segmentation-models-pytorch, such as deeplabv3plus."""
    backbone: str = "resnet50"
    """Backbone: resnet50, resnet101, vgg16 or wideresnet38 as in the paper, or a timm CNN or vision transformer."""
    pretrained: bool | str = True
    """Weights to start from: ImageNet (true, downloaded), random (false), torchvision by name, a file, or a model."""
    finetune: bool | None = None
    """Freeze the backbone's first layers and batch norms and use a lower learning rate; auto: if pretrained."""
    blocks: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Blocks of a vision transformer whose tokens are used, from 1; auto: the last, and the one at three quarters."""
    trainable_blocks: Annotated[int, Field(ge=0)] | Literal["all"] | None = None
    """Last blocks of a vision transformer that learn: a number, or all; auto: 0 (frozen) if pretrained."""
    context: Literal["aspp", "conv"] | None = None
    """Layers on the deep features: aspp (DeepLabv3+) or conv, for transformers; auto: by the backbone."""
    pooling: Literal["ngwp", "gap", "max", "lse", "gwp"] = "ngwp"
    """Pooling of pixel scores: ngwp (Eq. 3); for comparison gap (Eq. 1), max, lse or gwp."""
    penalty: Literal["focal", "plain", "none"] = "focal"
    """Size penalty: focal (Eq. 5), plain (Eq. 4) or none."""
    penalty_p: float = Field(default=3.0, ge=0)
    """Exponent p of the focal penalty; higher values penalize only smaller masks."""
    penalty_lambda: float = Field(default=0.01, gt=0)
    """Lambda of the size penalty; the penalty of an empty mask is log(lambda)."""
    gate: Literal["stochastic", "stochastic-pixel", "deterministic", "none"] = "stochastic"
    """Gate for shallow features: stochastic (Eq. 9), stochastic-pixel (one draw a pixel), deterministic or none."""
    psi: float = Field(default=0.3, ge=0, lt=1)
    """Mixing rate of the gate: the share of shallow features."""
    gci: bool | Literal["paper"] | None = None
    """Global Cue Injection (Eq. 11): true, false, or paper for the paper's formula; auto: if there is a gate."""
    width: int = Field(default=256, ge=16, le=4096)
    """Channels of the ASPP and the decoder; fewer are faster and less accurate."""
    background_score: float = 1.0
    """Constant score of the background for single-stage; transformers, whose tokens see the whole image, need more."""
    background: float = Field(default=0.1, ge=0)
    """Constant background score of cam; a class must exceed it to win a pixel."""
    in_channels: int = Field(default=3, ge=1, le=1024)
    """Channels of the images; cannot be set in a recipe."""
    stride_on: Literal["conv1", "conv2"] = "conv2"
    """Strided convolution of a ResNet's blocks; comes with its weights, cannot be set in a recipe."""
    class_names: Annotated[tuple[str, ...], Field(max_length=65535)] = ()
    """Class names without the background; come with the data, cannot be set in a recipe."""

    @field_validator("pretrained", mode="before")
    @classmethod
    def _accept_path(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @field_validator("gci", mode="before")
    @classmethod
    def _check_gci(cls, value: object) -> object:
        if value not in (True, False, None, "paper"):
            raise ConfigError(f"gci must be true, false or 'paper', got {value!r}")
        return value

    @field_validator("class_names")
    @classmethod
    def _check_class_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if any(ord(char) < 32 for char in name):
                raise ConfigError(f"the class name {name!r} has a character that is not printable")
        return value

    @model_validator(mode="after")
    def _check_architecture(self) -> Self:
        if self.architecture != "segmenter" and self.method != "supervised":
            raise ConfigError(
                f"model.architecture={self.architecture!r} learns from masks: set model.method to supervised, or "
                "model.architecture to segmenter"
            )
        return self

    @model_validator(mode="after")
    def _check_gate(self) -> Self:
        if self.gate == "none" and self.gci:
            raise ConfigError("gci needs a gate: without one the shallow features are not used; set gci to false")
        return self

    @property
    def num_classes(self) -> int:
        """Number of classes without the background."""
        return len(self.class_names)

    def resolve(self) -> Self:
        """Replace automatic values; the result is the config of a built network.

        Its `pretrained` is False: the network, and its file, hold all weights.
        """
        finetune = bool(self.pretrained) if self.finetune is None else self.finetune
        trainable_blocks = self.trainable_blocks
        if trainable_blocks is None:
            trainable_blocks = 0 if finetune else "all"
        return self.model_copy(
            update={
                "finetune": finetune,
                "trainable_blocks": trainable_blocks,
                "gci": self.gate != "none" if self.gci is None else self.gci,
                "pretrained": False,
            }
        )

    def to_json(self) -> str:
        """One line of JSON, for a file's metadata."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; missing fields have their defaults."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise ConfigError("the model configuration is not a JSON object")
        return cls.parse({"pretrained": False, **values})


def name_classes(classes: int | Sequence[str]) -> tuple[str, ...]:
    """Class names; `class 1`, `class 2` and so on if only their number is given."""
    if isinstance(classes, str):
        raise ConfigError(f"classes must be a number or a list of names, got the text {classes!r}")
    names = [f"class {number}" for number in range(1, classes + 1)] if isinstance(classes, int) else list(classes)
    if not names:
        raise ConfigError("classes must be 1 or more (the background is not counted), got 0")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"class names must differ, got {repeated[0]!r} more than once")
    return tuple(names)


def _first_error(settings: type[Settings], error: ValidationError) -> TagsegError:
    """First validation error in one line."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, TagsegError):
        return cause
    # Pydantic appends the tried type to the location of a union's errors.
    known = {part for name in settings.setting_names() for part in name.split(".")}
    location = [str(part) for part in first["loc"]]
    name = ".".join(part for part in location if part in known or part.isdigit())
    if first["type"] == "extra_forbidden":
        return unknown_name("setting", ".".join(location), settings.setting_names())
    if first["type"] == "literal_error":
        return unknown_name(name, first["input"], re.findall(r"'([^']*)'", first["ctx"]["expected"]))
    return ConfigError(f"setting {name}={first['input']!r}: {first['msg'].lower()}")
