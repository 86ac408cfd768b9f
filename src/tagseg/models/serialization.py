"""Model files: one safetensors file holds the weights and, in its metadata, the configuration of the network."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tagseg._files import write_atomically
from tagseg._hub import CHECKPOINT_FILE, DEFAULT_MODEL, MODEL_FILE, find_on_hub, is_hub_name
from tagseg.data.files import expand_home
from tagseg.errors import ConfigError, WeightsError
from tagseg.models.base import Network
from tagseg.models.build import build_network
from tagseg.models.config import ModelConfig
from tagseg.models.pretrained import load_matching_state, read_weights

DEFAULT_FOLDER = Path(__file__).parents[1] / DEFAULT_MODEL  # in the package: the model that comes with it, and its card
CHECKPOINT_PREFIX = "network."
AVERAGE_PREFIX = "average."  # the moving average of the network's weights, if the run has one
_CONFIG_KEY = "tagseg_model"


def save_model(model: Network, path: str | Path, *, notes: Mapping[str, str] | None = None, half: bool = False) -> None:
    """Write a model to a safetensors file.

    Args:
        model: Network to save.
        path: File to write.
        notes: Further metadata, such as inference settings; `read_notes` returns them.
        half: Store the weights of convolutions and linear layers in half precision.
    """
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if half:  # variances of batch norms may exceed the range of half precision
        state = {name: tensor.half() if tensor.dim() >= 2 else tensor for name, tensor in state.items()}
    metadata = {**(notes or {}), **config_metadata(model)}
    write_atomically(Path(path), lambda part: save_file(state, part, metadata))


def config_metadata(model: Network) -> dict[str, str]:
    """Metadata from which `load_model` rebuilds a network."""
    return {_CONFIG_KEY: model.config.to_json()}


def config_from_metadata(metadata: Mapping[str, str], path: str | Path) -> ModelConfig:
    """Configuration in the metadata of a model's file, whose path is for the error."""
    if _CONFIG_KEY not in metadata:
        raise WeightsError(f"{path} has no tagseg configuration, so it is not a model saved by tagseg")
    return ModelConfig.from_json(metadata[_CONFIG_KEY])


def load_model(path: str | Path) -> Network:
    """Load a model of `save_model`, or the network of a run's checkpoint, in evaluation mode."""
    state, metadata = read_weights(Path(path))
    try:
        config = config_from_metadata(metadata, path)
        model = build_network(config, config.class_names)
    except ConfigError as error:
        raise WeightsError(f"{path} is not a model of this version of tagseg: {error.problem}", error.advice) from None
    parts = (select_tensors(state, prefix) for prefix in (AVERAGE_PREFIX, CHECKPOINT_PREFIX))
    load_matching_state(model, next(filter(None, parts), state), origin=str(path))
    return model.eval()


def fingerprint(network: Network) -> str:
    """Hash of a network's weights."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def find_model(path: str | Path) -> Path:
    """File of a model.

    Args:
        path: A run folder, a model file, `organization/name` of a model on the Hugging Face hub, or `default`: the
            model that comes with tagseg (`./default` is a folder of that name).
    """
    file = DEFAULT_FOLDER if path == DEFAULT_MODEL else expand_home(path)
    if not file.exists():
        if is_hub_name(path):
            return find_on_hub(str(path), MODEL_FILE)
        raise WeightsError(f"{path}: does not exist", f"name a run folder, a model file, or {DEFAULT_MODEL}")
    if not file.is_dir():
        return file
    if (file / MODEL_FILE).is_file():
        return file / MODEL_FILE
    checkpoint = file / CHECKPOINT_FILE
    raise WeightsError(
        f"{path}: this folder has no {MODEL_FILE}"
        + (f", but {checkpoint} has the network as it stands" if checkpoint.is_file() else ""),
        "name a run folder or a model file",
    )


def is_model_file(path: Path) -> bool:
    """Whether a safetensors file holds a model or the checkpoint of a run, and not the weights of a backbone."""
    return path.is_file() and _CONFIG_KEY in read_metadata(path)


def select_tensors(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def read_notes(path: str | Path) -> dict[str, str]:
    """Read the notes that `save_model` wrote."""
    return {key: value for key, value in read_metadata(path).items() if key != _CONFIG_KEY}


def read_metadata(path: str | Path) -> dict[str, str]:
    """Read the metadata of a safetensors file without its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError):
        raise WeightsError(f"{path} is not a readable file of weights: it is damaged, or no safetensors file") from None
