"""Recipes: typed settings of a training run, read from small named files and changed field by field."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tagseg.errors import unknown_name

Share = Annotated[float, Field(gt=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelSettings(_Section):
    """Which network."""

    method: Literal["single-stage", "cam"] = "single-stage"
    """The paper's (single-stage) or the baseline (cam)."""
    backbone: str = "resnet50"
    """A network of the paper (resnet50, resnet101, vgg16, wideresnet38), or a convolutional one of timm by name."""
    pretrained: bool | str = True
    """Where its weights come from: ImageNet's by download (true), chance (false), or a file's path."""
    finetune: bool | None = None
    """Whether the backbone's first layers and batch norms stay as they are; open: wherever it has weights."""
    pooling: str = "ngwp"
    """How masks become scores: ngwp, or gap, max, lse, gwp for comparison."""
    penalty: str = "focal"
    """What small masks cost: focal, plain or none."""
    penalty_p: float = Field(default=3.0, ge=0)
    """How fast the focal penalty fades as a mask grows."""
    penalty_lambda: float = Field(default=0.01, gt=0)
    """Its size: an empty mask costs the logarithm of it."""
    gate: str = "stochastic"
    """How shallow features come in: stochastic, stochastic-pixel, deterministic or none."""
    psi: float = Field(default=0.3, ge=0, lt=1)
    """The gate's share of shallow features."""
    gci: bool | Literal["paper"] | None = None
    """Global Cue Injection: true, false, or paper for the paper's formula; open: wherever there is a gate."""
    width: int = Field(default=256, ge=16)
    """Channels of the decoder; fewer are faster and know less."""
    background: float = Field(default=0.1, ge=0)
    """For cam alone: the constant that a class has to exceed."""


class TransformSettings(_Section):
    """How images are changed before the network sees them (Sec. 4.1)."""

    crop: int = Field(default=448, ge=32)
    """Side of the square that the network sees, in pixels; memory grows with its square."""
    area: tuple[Share, Share] = (0.9, 1.0)
    """Which share of an image a crop may cover."""
    flip: bool = True
    """Whether images are mirrored by chance."""
    brightness: float = Field(default=0.3, ge=0)
    """How much it may change by chance, as a share."""
    contrast: float = Field(default=0.3, ge=0)
    """The same."""
    saturation: float = Field(default=0.3, ge=0)
    """The same."""
    hue: float = Field(default=0.1, ge=0, le=0.5)
    """The same, as a share of the colour circle."""

    @property
    def jitters(self) -> bool:
        """Whether colours change at all."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))


class TrainingSettings(_Section):
    """SGD, a constant rate, and how long."""

    epochs: int = Field(default=20, ge=1)
    """How often every image is seen."""
    classification_epochs: int = Field(default=5, ge=0)
    """How many of them learn from tags alone, before masks teach too."""
    batch_size: int = Field(default=16, ge=1)
    """Images a step; memory grows with it."""
    gradient_accumulation: int = Field(default=1, ge=1)
    """Parts that a batch is computed in, for less memory."""
    lr: float = Field(default=0.0005, gt=0)
    """The learning rate of a backbone with weights; all else learns ten times as fast."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """How much of the last step goes on into the next."""
    weight_decay: float = Field(default=5e-4, ge=0)
    """How strongly weights are pulled to 0."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """What is computed in: fp32, bf16, fp16, or auto, which is bf16 on GPUs that have it."""
    compile: bool | Literal["auto"] = "auto"
    """Whether the network is compiled: true, false, or auto, on a GPU for runs that are long enough."""
    seed: int = 0
    """Where all that is random starts."""


class PseudoLabelSettings(_Section):
    """How masks become pseudo labels (Sec. 3.3)."""

    refine: Literal["pamr", "none"] = "pamr"
    """What masks go through before they teach: pamr, which pulls them to the image's edges, or none."""
    dilations: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2, 4, 8, 12, 24), min_length=1)
    """How far PAMR looks, in pixels."""
    iterations: int = Field(default=10, ge=0)
    """How often PAMR looks."""
    kernel: Literal["reference", "paper"] = "reference"
    """PAMR's formula: the published code's (reference) or the paper's."""
    foreground_threshold: float = Field(default=0.6, ge=0, le=1)
    """The share of its mask's maximum above which a pixel teaches a class."""
    background_threshold: float = Field(default=0.7, ge=0, le=1)
    """The same for the background."""
    min_threshold: float = Field(default=0.2, ge=0, le=1)
    """The value below which no pixel teaches."""
    weighting: Literal["reference", "paper"] = "reference"
    """How images count: alike, as in the published code (reference), or by their sure pixels (paper)."""
    loss_weight: float = Field(default=1.0, ge=0)
    """How much the masks' loss counts."""


class ValidationSettings(_Section):
    """What is held out of training, and which epoch's network becomes the model; masks have no say."""

    fraction: float = Field(default=0.1, gt=0, lt=1)
    """How many of the images are held out, where --val names none."""
    checkpoint: Literal["last", "best"] = "last"
    """The epoch whose network is the model: last, or best, the one with the lowest loss on images held out."""
    every: int = Field(default=1, ge=1)
    """Epochs between validations."""
    batch_size: int = Field(default=16, ge=1)
    """Images at a time."""


class InferenceOptions(_Section):
    """How the trained model is used; None is the paper's way for its backbone and method."""

    scales: Annotated[tuple[Annotated[float, Field(gt=0, le=8)], ...], Field(min_length=1)] | None = None
    """The scales that --tta looks at; open: the paper's for the backbone."""
    flip: bool = True
    """Whether --tta looks at mirror images too."""
    background_power: float | None = Field(default=None, gt=0)
    """The exponent that discounts the background; open: 3, and 1 for cam."""


class Recipe(_Section):
    """All settings of a run."""

    model: ModelSettings = ModelSettings()
    transforms: TransformSettings = TransformSettings()
    training: TrainingSettings = TrainingSettings()
    pseudo_labels: PseudoLabelSettings = PseudoLabelSettings()
    validation: ValidationSettings = ValidationSettings()
    inference: InferenceOptions = InferenceOptions()

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
                raise unknown_name("setting", field, list(describe_settings())) from None
            raise ValueError(f"setting {field}={first['input']!r}: {first['msg'].lower()}") from None


def recipe_names(*, all: bool = False) -> list[str]:
    """Return the names of the built-in recipes.

    Args:
        all: Whether to include those of the paper's tables and ablations.
    """
    return sorted(_recipe_files(all=all))


def describe_recipe(name: str) -> str:
    """Return the purpose of a built-in recipe: the comment at the start of its file."""
    lines = takewhile(lambda line: line.startswith("# "), _recipe_files(all=True)[name].read_text().splitlines())
    return " ".join(line.removeprefix("# ") for line in lines)


def describe_settings() -> dict[str, tuple[str, str]]:
    """For every setting, as `section.field`, its value if nothing is changed, and what it does."""
    return {
        f"{section}.{name}": (_as_toml(getattr(values, name)), field.description or "")
        for section, values in Recipe()
        for name, field in type(values).model_fields.items()
    }


def _as_toml(value: Any) -> str:
    return "open" if value is None else json.dumps(value).strip('"')


def _recipe_files(*, all: bool) -> dict[str, Traversable]:
    """Return the files of the built-in recipes by name; names are unique over both folders."""
    top = resources.files("tagseg") / "recipes"
    folders = [top, top / "paper"] if all else [top]
    files = [file for folder in folders for file in folder.iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): file for file in files}


def _read(name: str | Path) -> dict[str, Any]:
    """A recipe's settings on top of those of its base."""
    if Path(name).suffix == ".toml":
        if not Path(name).is_file():
            raise ValueError(f"no recipe file at {name}")
        text = Path(name).read_text()
    elif str(name) in (files := _recipe_files(all=True)):
        text = files[str(name)].read_text()
    else:
        more = ", those of the paper's tables, and paths of .toml files"
        raise unknown_name("recipe", name, recipe_names(), more=more, hidden=files)
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
    if f"{section}.{name}" not in describe_settings():
        raise unknown_name("setting", field, list(describe_settings()))
    values.setdefault(section, {})[name] = _value(text.strip())


def _value(text: str) -> Any:
    """TOML where it is TOML (numbers, true, lists), and otherwise the text itself, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
