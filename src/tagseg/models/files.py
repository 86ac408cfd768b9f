"""Models as files: one safetensors file holds the weights and the configuration that rebuilds the network."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from tagseg.models.build import build_network
from tagseg.models.config import ModelConfig
from tagseg.models.network import Network
from tagseg.models.weights import fit, read_weights

_KEY = "tagseg_model"


def save_model(model: Network, path: str | Path, *, notes: Mapping[str, str] | None = None) -> None:
    """Write a model to a safetensors file, with its configuration in the file's metadata.

    Args:
        model: the network.
        path: the file to write.
        notes: further metadata, for example how to use the model; `read_notes` gives them back.
    """
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, path, metadata={**(notes or {}), _KEY: model.config.to_json()})


def load_model(path: str | Path) -> Network:
    """The model that `save_model` wrote, in evaluation mode."""
    state, metadata = read_weights(Path(path))
    if _KEY not in metadata:
        raise ValueError(f"{path} has no tagseg configuration, so it is not a saved model; was it made by save_model?")
    model = build_network(ModelConfig.from_json(metadata[_KEY]))
    fit(model, state, origin=str(path))
    return model.eval()


def read_notes(path: str | Path) -> dict[str, str]:
    """The notes that `save_model` wrote beside a model."""
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, str] = file.metadata() or {}
    return {key: value for key, value in metadata.items() if key != _KEY}
