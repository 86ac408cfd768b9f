"""Recipes: the settings of a training run, read from TOML files and changed by name."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tagseg.errors import ConfigError, unknown_name
from tagseg.models.config import SET_BY_BUILDING, ModelConfig, Settings

Share = Annotated[float, Field(gt=0, le=1)]
Scale = Annotated[float, Field(gt=0, le=8)]


class TransformSettings(Settings):
    """Transforms of training images (Sec. 4.1)."""

    crop: int = Field(default=448, ge=32)
    """Side of the square crop in pixels; memory grows with its square."""
    area: tuple[Share, Share] = (0.9, 1.0)
    """Range of the share of an image that a crop covers; it is squeezed into a square."""
    scale: tuple[Scale, Scale] | None = None
    """Range of an image's longest side before the crop, in crops, in place of area; none: crops are chosen by area."""
    flip: bool = True
    """Random horizontal flips."""
    brightness: float = Field(default=0.3, ge=0)
    """Strength of random brightness changes, as a share."""
    contrast: float = Field(default=0.3, ge=0)
    """Strength of random contrast changes, as a share."""
    saturation: float = Field(default=0.3, ge=0)
    """Strength of random saturation changes, as a share."""
    hue: float = Field(default=0.1, ge=0, le=0.5)
    """Strength of random hue changes, as a share of the color circle."""

    @property
    def jitters(self) -> bool:
        """Whether colors are changed."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))

    @property
    def only_flips(self) -> bool:
        """Whether nothing but flips is random: every crop is the whole image or its mirror image."""
        return self.area == (1.0, 1.0) and self.scale is None and not self.jitters


class TrainingSettings(Settings):
    """Optimization; the paper's is SGD with a constant learning rate."""

    epochs: int = Field(default=20, ge=1)
    """Number of epochs."""
    classification_epochs: int = Field(default=5, ge=0)
    """Number of first epochs that train on image labels alone, without pseudo labels; fewer than epochs."""
    batch_size: int = Field(default=16, ge=1)
    """Images per step, over all processes; memory grows with it."""
    gradient_accumulation: int = Field(default=1, ge=1)
    """Micro-batches that a batch is split into, for less memory."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """Optimizer: sgd, as in the paper, or adamw, for vision transformers."""
    lr: float = Field(default=0.0005, gt=0)
    """Learning rate of a fine-tuned backbone; the rest of the network learns at ten times this rate."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of SGD."""
    schedule: Literal["constant", "linear"] = "constant"
    """Learning rate over the run: constant, or linear decay to 0."""
    warmup_steps: int = Field(default=0, ge=0)
    """First steps, over which the learning rate grows from 0."""
    ema: float = Field(default=0.0, ge=0, lt=1)
    """Decay of an exponential moving average of the weights, which is the model then; 0 for none."""
    cache_features: bool | Literal["auto"] = "auto"
    """Compute the features of a frozen backbone once per image: true, false, or auto, if only flips are random."""
    weight_decay: float = Field(default=5e-4, ge=0)
    """Weight decay; biases have none."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision: fp32, bf16, fp16, or auto, which is bf16 on GPUs that multiply it natively."""
    compile: bool | Literal["auto"] = "auto"
    """Compile the network: true, false, or auto, for long runs on a GPU."""
    seed: int = 0
    """Random seed."""


class PseudoLabelSettings(Settings):
    """Pseudo labels from the network's masks (Sec. 3.3)."""

    teacher: Literal["network", "ema"] = "network"
    """Network whose masks become pseudo labels: the one in training, or its moving average (training.ema)."""
    walk_steps: int = Field(default=0, ge=0)
    """Steps of a random walk of masks between similar tokens of a vision transformer, before PAMR; 0 for none."""
    walk_temperature: float = Field(default=0.1, gt=0)
    """Temperature of the similarities of tokens; lower values walk between more similar tokens only."""
    refine: Literal["pamr", "none"] = "pamr"
    """Refinement of masks: pamr, which aligns them with image edges, or none."""
    dilations: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2, 4, 8, 12, 24), min_length=1)
    """Dilations of PAMR's 3x3 kernels, in pixels."""
    iterations: int = Field(default=10, ge=0)
    """Number of PAMR iterations."""
    kernel: Literal["reference", "paper"] = "reference"
    """Kernel of PAMR: that of the published code (reference) or of the paper."""
    foreground_threshold: float = Field(default=0.6, ge=0, le=1)
    """Share of its mask's maximum that a pixel of a class must exceed."""
    background_threshold: float = Field(default=0.7, ge=0, le=1)
    """Share of its mask's maximum that a pixel of the background must exceed."""
    min_threshold: float = Field(default=0.2, ge=0, le=1)
    """Lower bound of both thresholds."""
    weighting: Literal["reference", "paper", "pixels"] = "reference"
    """Weights in the loss: by class, with equal images (reference) or by their pixels (paper); pixels: all equal."""
    loss_weight: float = Field(default=1.0, ge=0)
    """Weight of the segmentation loss."""


class ValidationSettings(Settings):
    """Held-out images, and the choice of the checkpoint; only image labels are used, never masks."""

    fraction: float = Field(default=0.1, gt=0, lt=1)
    """Share of the images to hold out, if no validation images are given."""
    checkpoint: Literal["last", "best"] = "last"
    """Checkpoint to keep as the model: last, or best (lowest validation loss)."""
    every: int = Field(default=1, ge=1)
    """Epochs between validations."""
    batch_size: int = Field(default=16, ge=1)
    """Images per batch in validation."""


class InferenceOptions(Settings):
    """Inference settings to store in the model; `InferenceSettings` checks their values."""

    size: int | Literal["native"] | None = None
    """Working size: longest side of an image in pixels, or native for its own; auto: by the crop, 500 for 448."""
    scales: tuple[float, ...] | None = None
    """Scales of test-time augmentation; auto: the paper's for the backbone."""
    flip: bool = True
    """Horizontal flips in test-time augmentation."""
    background_power: float | None = None
    """Exponent that discounts the background; auto: 3, or 1 for cam."""


class Recipe(Settings):
    """All settings of a training run."""

    model: ModelConfig = ModelConfig()
    transforms: TransformSettings = TransformSettings()
    training: TrainingSettings = TrainingSettings()
    pseudo_labels: PseudoLabelSettings = PseudoLabelSettings()
    validation: ValidationSettings = ValidationSettings()
    inference: InferenceOptions = InferenceOptions()

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        for name in SET_BY_BUILDING:
            if getattr(self.model, name) != ModelConfig.model_fields[name].default:
                raise ConfigError(f"model.{name} comes with the data or the weights and cannot be set in a recipe")
        return self

    @model_validator(mode="after")
    def _check_epochs(self) -> Self:
        epochs, first_epochs = self.training.epochs, self.training.classification_epochs
        if self.model.method == "single-stage" and epochs <= first_epochs:
            raise ConfigError(
                f"training.epochs={epochs} is not above training.classification_epochs={first_epochs}, so no masks "
                "would be learned",
                "raise the first or lower the second",
            )
        return self

    @model_validator(mode="after")
    def _check_teacher(self) -> Self:
        if self.pseudo_labels.teacher == "ema" and not self.training.ema:
            raise ConfigError("pseudo_labels.teacher=ema needs a moving average of the weights: set training.ema")
        return self

    @model_validator(mode="after")
    def _check_cache(self) -> Self:
        if self.training.cache_features is True and not self.transforms.only_flips:
            raise ConfigError(
                "training.cache_features needs whole images: set transforms.area to [1, 1] and brightness, contrast, "
                "saturation and hue to 0"
            )
        return self

    @classmethod
    def load(
        cls, recipe: "str | Path | Recipe" = "default", changes: Mapping[str, Any] | Sequence[str] = ()
    ) -> "Recipe":
        """Load a recipe and change some of its settings.

        Args:
            recipe: Name of a recipe, path of a TOML file, or a recipe.
            changes: Settings by name, as in `with_settings`, or texts, as in `with_assignments`.
        """
        loaded = recipe if isinstance(recipe, Recipe) else cls.parse(_read(recipe))
        if isinstance(changes, Mapping):
            return loaded.with_settings(changes)
        return loaded.with_assignments(changes)

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """Copy of the recipe with other values.

        Args:
            settings: Values by the names of settings, such as `{"epochs": 5}` or `{"training.epochs": 5}`, or sections
                with some of their settings, such as `{"model": {"gate": "none"}}`.
        """
        values = self.to_dict()
        for name, value in settings.items():
            if name not in values:
                section, field = self._find(name)
                values[section][field] = value
            elif isinstance(value, Settings):
                values[name] = value.model_dump(exclude=set(SET_BY_BUILDING))
            elif isinstance(value, Mapping):
                values[name] |= value
            else:
                raise ConfigError(f"{name} is a section of settings and needs a dictionary, got {value!r}")
        return self.parse(values)

    def with_assignments(self, assignments: Sequence[str]) -> Self:
        """Copy of the recipe with other values, given as texts such as `model.gate=none`."""
        if isinstance(assignments, str):
            raise ConfigError(f"assignments must be a list of texts, got the text {assignments!r}")
        settings: dict[str, Any] = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals or "." not in name:
                raise ConfigError(
                    f"a setting is changed by section.field=value, for example model.gate=none; got {assignment!r}"
                )
            settings[name.strip()] = _parse_value(text.strip())
        return self.with_settings(settings)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Settings by section, as plain JSON values."""
        return self.model_dump(mode="json", exclude={"model": set(SET_BY_BUILDING)})

    def to_toml(self) -> str:
        """The recipe as a TOML file, which `load` reads; automatic values are left out."""
        sections = []
        for name, values in self.to_dict().items():
            lines = [f"{field} = {json.dumps(value)}" for field, value in values.items() if value is not None]
            sections.append("\n".join([f"[{name}]", *lines]))
        return "\n\n".join(sections) + "\n"

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate settings by section.

        Raises:
            ConfigError: It names the first invalid setting in one line.
        """
        model = values.get("model")
        if isinstance(model, Mapping):
            for name in SET_BY_BUILDING:
                if name in model:
                    raise unknown_name("setting", f"model.{name}", cls.setting_names())
        return super().parse(values)

    @classmethod
    def setting_names(cls) -> list[str]:
        """Names of all settings that can be changed, as `section.field`."""
        hidden = {f"model.{name}" for name in SET_BY_BUILDING}
        return [name for name in super().setting_names() if name not in hidden]

    @classmethod
    def _find(cls, name: str) -> tuple[str, str]:
        """Section and field of a setting, given as `section.field` or, where that is unique, as `field`."""
        names = cls.setting_names()
        matches = [full for full in names if name in (full, full.partition(".")[2])]
        if not matches:
            raise unknown_name("setting", name, names, hidden=[full.partition(".")[2] for full in names])
        if len(matches) > 1:
            sections = [full.partition(".")[0] for full in matches]
            raise ConfigError(
                f"setting {name!r} is in several sections: {', '.join(sections)}",
                f"name one, for example {sections[0]}={{{{{name!r}: ...}}}}",
            )
        section, _, field = matches[0].partition(".")
        return section, field


def recipe_names(*, all: bool = False) -> list[str]:
    """Names of the recipes that come with tagseg.

    Args:
        all: Include those of the paper's tables and ablations.
    """
    return sorted(_recipe_files(all=all))


def describe_recipe(name: str) -> str:
    """Purpose of a recipe: the comment at the start of its file."""
    lines = takewhile(lambda line: line.startswith("# "), _recipe_files(all=True)[name].read_text().splitlines())
    return " ".join(line.removeprefix("# ") for line in lines)


def describe_settings() -> dict[str, tuple[str, str]]:
    """Default value and meaning of every setting that can be changed, by its name `section.field`."""
    descriptions = {}
    for full_name in Recipe.setting_names():
        section, _, name = full_name.partition(".")
        values = getattr(Recipe(), section)
        meaning = type(values).model_fields[name].description or ""
        descriptions[full_name] = (_format_value(getattr(values, name)), meaning)
    return descriptions


def _format_value(value: Any) -> str:
    return "auto" if value is None else json.dumps(value).strip('"')


def _recipe_files(*, all: bool) -> dict[str, Traversable]:
    """Files of the recipes by name; names are unique over both folders."""
    top = resources.files("tagseg") / "recipes"
    folders = [top, top / "paper"] if all else [top]
    files = [file for folder in folders for file in folder.iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): file for file in files}


def _read(recipe: str | Path, derived: tuple[str, ...] = ()) -> dict[str, Any]:
    """Settings of a recipe, merged with those of its base."""
    name = str(recipe)
    if name in derived:
        raise ConfigError(f"recipe {name} is based on itself, by way of {', '.join(derived)}")
    if Path(name).suffix == ".toml":
        if not Path(name).is_file():
            raise ConfigError(
                f"{name}: does not exist", "name a recipe or a TOML file; tagseg recipes lists the recipes"
            )
        file: Path | Traversable = Path(name)
    elif name in (files := _recipe_files(all=True)):
        file = files[name]
    else:
        more = ", those of the paper's tables, and paths of .toml files"
        raise unknown_name("recipe", name, recipe_names(), more=more, hidden=files)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"recipe {name} is not valid TOML: {error}") from None
    base = values.pop("base", None)
    return values if base is None else _merge(_read(str(base), (*derived, name)), values)


def _merge(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in values.items():
        section = merged.get(key, {})
        merged[key] = {**section, **value} if isinstance(value, dict) and isinstance(section, dict) else value
    return merged


def _parse_value(text: str) -> Any:
    """Parse TOML values (numbers, true, lists); any other text is itself, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
