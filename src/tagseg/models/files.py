"""Models as files: one safetensors file holds the weights and the configuration that rebuilds the network."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from tagseg.models.build import build_network
from tagseg.models.config import ModelConfig
from tagseg.models.network import Network
from tagseg.models.weights import fit, read_weights

MODEL_FILE = "model.safetensors"  # its name in the folder of a run
CHECKPOINT_FILE = "checkpoint.safetensors"  # where the run stands: the network, and what the optimiser remembers
CHECKPOINT_PREFIX = "network."
_KEY = "tagseg_model"


def save_model(model: Network, path: str | Path, *, notes: Mapping[str, str] | None = None, half: bool = False) -> None:
    """Write a model to a safetensors file, with its configuration in the file's metadata.

    Args:
        model: the network.
        path: the file to write.
        notes: further metadata, for example how to use the model; `read_notes` gives them back.
        half: keep the convolutions' weights in half precision: half the size, and masks that differ by rounding alone.
    """
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if half:  # not the rest: variances of batch norms may be larger than half precision reaches
        state = {name: tensor.half() if tensor.dim() == 4 else tensor for name, tensor in state.items()}
    metadata = {**(notes or {}), **configuration(model)}
    replace_file(Path(path), lambda part: save_file(state, part, metadata))


def configuration(model: Network) -> dict[str, str]:
    """What a file has to say of a model, so that it can be rebuilt."""
    return {_KEY: model.config.to_json()}


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file beside its place, make sure that it is on disk, and only then put it there: no crash leaves half."""
    part = path.with_name(path.name + ".part")
    part.touch()
    rights = part.stat().st_mode  # those that new files have here: safetensors would let nobody else read it
    write(part)
    part.chmod(rights)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def load_model(path: str | Path) -> Network:
    """The model that `save_model` wrote, or the network of a run's checkpoint, in evaluation mode."""
    state, metadata = read_weights(Path(path))
    if _KEY not in metadata:
        raise ValueError(f"{path} has no tagseg configuration, so it is not a saved model; was it made by save_model?")
    model = build_network(ModelConfig.from_json(metadata[_KEY]))
    of_checkpoint = {
        name.removeprefix(CHECKPOINT_PREFIX): tensor
        for name, tensor in state.items()
        if name.startswith(CHECKPOINT_PREFIX)
    }
    fit(model, of_checkpoint or state, origin=str(path))
    return model.eval()


def read_notes(path: str | Path) -> dict[str, str]:
    """The notes that `save_model` wrote beside a model."""
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, str] = file.metadata() or {}
    return {key: value for key, value in metadata.items() if key != _KEY}
