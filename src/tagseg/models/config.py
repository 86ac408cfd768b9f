"""Everything that says which network to build. It is saved with every model, so that one file is enough to load it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

from tagseg.errors import unknown_name
from tagseg.models.gate import GATES
from tagseg.models.pooling import PENALTIES, POOLINGS

METHODS = ("single-stage", "cam")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The settings of one network; `build_model` and `build_cam` explain each.

    `finetune` and `gci` are resolved here: a saved configuration leaves nothing open.
    """

    backbone: str
    class_names: tuple[str, ...]
    method: str = "single-stage"
    in_channels: int = 3
    pooling: str = "ngwp"
    penalty: str = "focal"
    penalty_p: float = 3.0
    penalty_lambda: float = 0.01
    gate: str = "stochastic"
    psi: float = 0.3
    gci: bool | Literal["paper"] = True
    width: int = 256
    background: float = 0.1
    finetune: bool = True
    stride_on: str = "conv2"

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("method", self.method, METHODS),
            ("pooling", self.pooling, POOLINGS),
            ("penalty", self.penalty, PENALTIES),
            ("gate", self.gate, GATES),
        ):
            if value not in known:
                raise unknown_name(kind, value, known)
        if self.gci not in (True, False, "paper"):
            raise ValueError(f"gci must be True, False or 'paper', got {self.gci!r}")
        if not self.class_names:
            raise ValueError("classes must be 1 or more (the background is not counted), got 0")
        if self.width < 16:
            raise ValueError(f"width must be 16 or more, got {self.width}")
        if self.gate == "none" and self.gci:
            raise ValueError("gci needs a gate: without one the shallow features are not used; pass gci=False")

    @property
    def classes(self) -> int:
        """How many classes there are, without the background."""
        return len(self.class_names)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ModelConfig":
        """The configuration that `to_json` wrote; an unknown field fails and names the nearest."""
        values = json.loads(text)
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown_name("model setting", name, known)
        return cls(**{**values, "class_names": tuple(values["class_names"])})


def name_classes(classes: int | Sequence[str]) -> tuple[str, ...]:
    """The classes' names; `class 1`, `class 2` ... where only their number is known."""
    if isinstance(classes, int):
        return tuple(f"class {number}" for number in range(1, classes + 1))
    if isinstance(classes, str):
        raise ValueError(f"classes must be a number or a list of names, got the text {classes!r}")
    if repeated := sorted({name for name in classes if list(classes).count(name) > 1}):
        raise ValueError(f"class names must differ, got {repeated[0]!r} more than once")
    return tuple(classes)
