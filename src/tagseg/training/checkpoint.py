"""Checkpoints: the state of a run in one safetensors file, replaced atomically."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tagseg._files import write_atomically
from tagseg._hub import CHECKPOINT_FILE
from tagseg.errors import WeightsError
from tagseg.models import Network
from tagseg.models.pretrained import read_weights
from tagseg.models.serialization import (
    AVERAGE_PREFIX,
    CHECKPOINT_PREFIX,
    config_metadata,
    read_metadata,
    select_tensors,
)

_OPTIMIZER_PREFIX = "optimizer."
_STATE_KEY = "train_state"


@dataclass
class TrainState:
    """State of a run besides its weights.

    Attributes:
        step: Optimizer steps done.
        model_epoch: Epoch whose network is the run's model, counted from 1; 0 if there is none yet.
        model_loss: Validation loss of that epoch.
        seconds: Training time over all sessions.
        sessions: Number of times the run was started or resumed.
        scale: State of the gradient scaler of half precision, if there is one.
        losses: Losses of the batches that are not yet in the log, which has means over several steps.
    """

    step: int = 0
    model_epoch: int = 0
    model_loss: float = float("inf")
    seconds: float = 0.0
    sessions: int = 0
    scale: dict[str, Any] | None = None
    losses: list[list[float]] = field(default_factory=list)


def save_checkpoint(
    folder: Path,
    network: Network,
    optimizer: torch.optim.Optimizer,
    train_state: TrainState,
    *,
    average: Network | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write the checkpoint of a run.

    Args:
        folder: Folder of the run.
        network: Network in training.
        optimizer: Its optimizer.
        train_state: State of the run besides its weights.
        average: Network with the moving average of the weights, if the run has one.
        notes: Further metadata, such as inference settings.
    """
    tensors = {f"{CHECKPOINT_PREFIX}{name}": tensor.contiguous() for name, tensor in network.state_dict().items()}
    if average is not None:
        tensors |= {f"{AVERAGE_PREFIX}{name}": value.contiguous() for name, value in average.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"{_OPTIMIZER_PREFIX}{index}.{key}": value.contiguous() for key, value in state.items()}
    metadata = {**(notes or {}), **config_metadata(network), _STATE_KEY: json.dumps(asdict(train_state))}
    write_atomically(folder / CHECKPOINT_FILE, lambda path: save_file(tensors, path, metadata))


def load_checkpoint(
    folder: Path, network: Network, optimizer: torch.optim.Optimizer, average: Network | None = None
) -> TrainState | None:
    """Restore the network, the optimizer and the moving average of a run; None if the run has no checkpoint yet."""
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return None
    tensors, metadata = read_weights(path)
    train_state = _parse_train_state(metadata, path)
    states: dict[int, dict[str, Tensor]] = {}
    try:
        for name, tensor in select_tensors(tensors, _OPTIMIZER_PREFIX).items():
            index, _, key = name.partition(".")
            states.setdefault(int(index), {})[key] = tensor
        network.load_state_dict(select_tensors(tensors, CHECKPOINT_PREFIX))
        if average is not None:
            average.load_state_dict(select_tensors(tensors, AVERAGE_PREFIX))
        optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    except (RuntimeError, ValueError, KeyError):
        raise WeightsError(
            f"{path} does not belong to this run's network", "delete it to train from the start, or change {out}"
        ) from None
    # The fused optimizer needs its state in the memory layout of the weights.
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            state[key] = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value
    return train_state


def read_train_state(folder: Path) -> TrainState | None:
    """Read the state of a run without its weights; None if the run has no checkpoint yet."""
    path = folder / CHECKPOINT_FILE
    return _parse_train_state(read_metadata(path), path) if path.is_file() else None


def _parse_train_state(metadata: Mapping[str, str], path: Path) -> TrainState:
    try:
        return TrainState(**json.loads(metadata[_STATE_KEY]))
    except (KeyError, TypeError, ValueError, RecursionError):
        raise WeightsError(f"{path} is not a checkpoint of this version of tagseg") from None
