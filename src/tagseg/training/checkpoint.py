"""Where a run stands, in one file: enough to go on from, and replaced whole, so that no crash leaves half of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from tagseg.models import Network
from tagseg.models.files import CHECKPOINT_FILE, CHECKPOINT_PREFIX, configuration, replace_file


@dataclass
class Progress:
    """What a run knows besides its weights.

    Attributes:
        step: optimiser steps done.
        kept_epoch: the epoch whose network is the run's model, counted from 1; 0 for none yet.
        kept_loss: its validation loss.
        seconds: time spent training, over all sessions.
        sessions: how often the run was started or went on.
        scale: the loss scale of half precision, if any.
    """

    step: int = 0
    kept_epoch: int = 0
    kept_loss: float = float("inf")
    seconds: float = 0.0
    sessions: int = 0
    scale: dict[str, Any] | None = None


def save_checkpoint(
    folder: Path,
    network: Network,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    *,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write the run's state; the previous one stays until the new one is complete on disk."""
    tensors = {f"{CHECKPOINT_PREFIX}{name}": tensor.contiguous() for name, tensor in network.state_dict().items()}
    for index, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{key}": value.contiguous() for key, value in state.items()}
    metadata = {**(notes or {}), **configuration(network), "progress": json.dumps(asdict(progress))}
    replace_file(folder / CHECKPOINT_FILE, lambda path: save_file(tensors, path, metadata))


def load_checkpoint(folder: Path, network: Network, optimiser: torch.optim.Optimizer) -> Progress | None:
    """Bring a run back to where it stood; None if it has not got to a checkpoint."""
    if not (folder / CHECKPOINT_FILE).is_file():
        return None
    state: dict[int, dict[str, Tensor]] = {}
    weights: dict[str, Tensor] = {}
    with safe_open(folder / CHECKPOINT_FILE, framework="pt") as file:
        progress = Progress(**json.loads(file.metadata()["progress"]))
        for name in file.keys():  # noqa: SIM118
            if name.startswith(CHECKPOINT_PREFIX):
                weights[name.removeprefix(CHECKPOINT_PREFIX)] = file.get_tensor(name)
            else:
                _, index, key = name.split(".", 2)
                state.setdefault(int(index), {})[key] = file.get_tensor(name)
    network.load_state_dict(weights)
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    for parameter, values in optimiser.state.items():  # the fused optimiser wants them to lie as the weights do
        for key, value in values.items():
            values[key] = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value
    return progress


def read_progress(folder: Path) -> Progress | None:
    """Where a run stands, without its weights."""
    if not (folder / CHECKPOINT_FILE).is_file():
        return None
    with safe_open(folder / CHECKPOINT_FILE, framework="pt") as file:
        return Progress(**json.loads(file.metadata()["progress"]))
