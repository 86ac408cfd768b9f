"""Recipes: typed settings of a training run, read from small named files and changed field by field."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tagseg._checks import unknown_name

Share = Annotated[float, Field(gt=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(_Section):
    """Which network; `build_model` and `build_cam` explain the fields."""

    method: Literal["single-stage", "cam"] = "single-stage"
    backbone: str = "resnet50"
    pretrained: bool | str = True
    finetune: bool | None = None
    pooling: str = "ngwp"
    penalty: str = "focal"
    penalty_p: float = Field(default=3.0, ge=0)
    penalty_lambda: float = Field(default=0.01, gt=0)
    gate: str = "stochastic"
    psi: float = Field(default=0.3, ge=0, lt=1)
    gci: bool | Literal["paper"] | None = None
    width: int = Field(default=256, ge=16)
    background: float = Field(default=0.1, ge=0)


class PictureSettings(_Section):
    """How pictures are changed before the network sees them (Sec. 4.1)."""

    crop: int = Field(default=448, ge=32)
    area: tuple[Share, Share] = (0.9, 1.0)
    flip: bool = True
    brightness: float = Field(default=0.3, ge=0)
    contrast: float = Field(default=0.3, ge=0)
    saturation: float = Field(default=0.3, ge=0)
    hue: float = Field(default=0.1, ge=0, le=0.5)

    @property
    def jitters(self) -> bool:
        """Whether colours change at all."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))


class OptimiserSettings(_Section):
    """SGD, a constant rate, and how long."""

    epochs: int = Field(default=20, ge=1)
    classification_epochs: int = Field(default=5, ge=0)
    batch: int = Field(default=16, ge=1)
    accumulate: int = Field(default=1, ge=1)
    lr: float = Field(default=0.0005, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: bool | Literal["auto"] = "auto"
    seed: int = 0


class SupervisionSettings(_Section):
    """How masks become pseudo labels (Sec. 3.3)."""

    refine: Literal["pamr", "none"] = "pamr"
    dilations: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2, 4, 8, 12, 24), min_length=1)
    iterations: int = Field(default=10, ge=0)
    kernel: Literal["reference", "paper"] = "reference"
    foreground: float = Field(default=0.6, ge=0, le=1)
    background: float = Field(default=0.7, ge=0, le=1)
    lowest: float = Field(default=0.2, ge=0, le=1)
    weighting: Literal["reference", "paper"] = "reference"
    weight: float = Field(default=1.0, ge=0)


class ValidationSettings(_Section):
    """Which pictures choose the checkpoint: by their tags alone."""

    share: float = Field(default=0.1, gt=0, lt=1)
    every: int = Field(default=1, ge=1)
    batch: int = Field(default=16, ge=1)


class UseSettings(_Section):
    """How the trained model is used; None is the paper's way for its backbone and method."""

    scales: Annotated[tuple[Annotated[float, Field(gt=0, le=8)], ...], Field(min_length=1)] | None = None
    flip: bool = True
    background_power: float | None = Field(default=None, gt=0)


class Recipe(_Section):
    """All settings of a run."""

    model: ModelSettings = ModelSettings()
    pictures: PictureSettings = PictureSettings()
    optimiser: OptimiserSettings = OptimiserSettings()
    supervision: SupervisionSettings = SupervisionSettings()
    validation: ValidationSettings = ValidationSettings()
    use: UseSettings = UseSettings()

    @classmethod
    def load(cls, name: str | Path, changes: Sequence[str] = ()) -> Self:
        """A recipe by name or from a TOML file, with changes such as `model.gate=none`."""
        values = _read(name)
        for change in changes:
            _apply(values, change)
        return cls.parse(values)

    def to_toml(self) -> str:
        """The recipe as a TOML file that `load` takes; what is left open is left out."""
        sections = []
        for name, values in self.model_dump(mode="json").items():
            lines = [f"{field} = {json.dumps(value)}" for field, value in values.items() if value is not None]
            sections.append("\n".join([f"[{name}]", *lines]))
        return "\n\n".join(sections) + "\n"

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Check settings; the error names the first field that is wrong, in one line."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                raise unknown_name("setting", field, all_fields()) from None
            raise ValueError(f"setting {field}={first['input']!r}: {first['msg'].lower()}") from None


def recipe_names() -> list[str]:
    """The recipes that come with tagseg."""
    return sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml"))


def describe_recipe(name: str) -> str:
    """What a recipe is for: the comment that its file starts with."""
    lines = takewhile(lambda line: line.startswith("# "), (_folder() / f"{name}.toml").read_text().splitlines())
    return " ".join(line.removeprefix("# ") for line in lines)


def all_fields() -> list[str]:
    """Every setting as `section.field`."""
    return [f"{name}.{field}" for name, values in Recipe().model_dump().items() for field in values]


def _folder() -> Any:
    return resources.files("tagseg") / "recipes"


def _read(name: str | Path) -> dict[str, Any]:
    """A recipe's settings on top of those of its base."""
    if Path(name).suffix == ".toml":
        if not Path(name).is_file():
            raise ValueError(f"no recipe file at {name}")
        text = Path(name).read_text()
    elif str(name) in recipe_names():
        text = (_folder() / f"{name}.toml").read_text()
    else:
        raise unknown_name("recipe", name, recipe_names(), more=" and paths of .toml files")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"recipe {name} is not valid TOML: {error}") from None
    base = values.pop("base", None)
    return _merge(_read(base), values) if base else values


def _merge(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in values.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def _apply(values: dict[str, Any], change: str) -> None:
    field, equals, text = change.partition("=")
    section, dot, name = field.strip().partition(".")
    if not (equals and dot):
        raise ValueError(f"a setting is changed by section.field=value, for example model.gate=none; got {change!r}")
    if f"{section}.{name}" not in all_fields():
        raise unknown_name("setting", field, all_fields())
    values.setdefault(section, {})[name] = _value(text.strip())


def _value(text: str) -> Any:
    """TOML where it is TOML (numbers, true, lists), and otherwise the text itself, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
