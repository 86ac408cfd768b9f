"""Start from an existing model: keep the layers that the new network shares with it, and the classes of both."""

import logging
from pathlib import Path

import torch

from tagseg._hub import DEFAULT_MODEL
from tagseg.data.files import expand_home
from tagseg.errors import WeightsError
from tagseg.models.base import Network
from tagseg.models.build import build_network
from tagseg.models.config import ModelConfig
from tagseg.models.pretrained import WEIGHT_SUFFIXES
from tagseg.models.serialization import config_from_metadata, find_model, is_model_file, load_model, read_metadata

logger = logging.getLogger(__name__)

# Options that decide which tensors a network has, or what they mean: they come with the model.
_DESIGN = ("architecture", "backbone", "blocks", "context", "gate", "psi", "gci", "width", "background_score")


def names_model(source: bool | str) -> bool:
    """Whether `pretrained` names a model: `default`, a run folder or a model file, and no weights of a backbone."""
    if not isinstance(source, str):
        return False
    path = expand_home(source)
    return source == DEFAULT_MODEL or path.is_dir() or (path.suffix == ".safetensors" and is_model_file(path))


def inherit_design(config: ModelConfig) -> ModelConfig:
    """Replace the options of the design by those of the model that `pretrained` names, if it names one.

    Raises:
        WeightsError: The model does not exist, or it does not suit the method.
    """
    source = config.pretrained
    if not names_model(source):
        if isinstance(source, str) and _is_path(source) and not expand_home(source).exists():
            raise WeightsError(
                f"{source}: does not exist", f"name a run folder, a model file, a file of weights, or {DEFAULT_MODEL}"
            )
        return config
    path = find_model(str(source))
    model = config_from_metadata(read_metadata(path), path)
    if model.architecture != "segmenter" and config.method != "supervised":
        raise WeightsError(
            f"{source} is a {model.architecture}, which learns from masks alone",
            "train it with train_masks (tagseg train-masks), or start from another model",
        )
    if model.backbone != config.backbone:
        logger.info("The network is that of %s: %s in place of %s", source, model.backbone, config.backbone)
    return ModelConfig.parse({**config.model_dump(), **{name: getattr(model, name) for name in _DESIGN}})


def build_from_model(config: ModelConfig) -> Network:
    """Build a network with the design and the layers of the model that `config.pretrained` names.

    Classes that the model knows by the same name keep their weights; those of the others are random.

    Args:
        config: Options of the network, with its class names.
    """
    model = load_model(find_model(str(config.pretrained)))
    fixed = {name: getattr(model.config, name) for name in ("in_channels", "stride_on")}
    network = build_network(inherit_design(config).resolve().model_copy(update=fixed))
    known = _copy_weights(model, network)
    unknown = [name for name in config.class_names if name not in known]
    logger.info(
        "Starting from %s: %d of %d classes are known%s",
        config.pretrained,
        len(known),
        config.num_classes,
        f", new: {', '.join(unknown)}" if unknown else "",
    )
    return network


def _is_path(source: str) -> bool:
    """Whether `pretrained` names a place rather than weights of a registry, which have no folder and no suffix."""
    return len(Path(source).parts) > 1 or Path(source).suffix in WEIGHT_SUFFIXES


@torch.no_grad()
def _copy_weights(model: Network, network: Network) -> list[str]:
    """Copy all tensors that both networks have, those of the classifier class by class; return the known classes."""
    given, weights = model.state_dict(), network.state_dict()
    known = [name for name in network.config.class_names if name in model.config.class_names]
    for name, weight in weights.items():
        if name not in given:
            continue
        if not name.startswith(f"{network.classifier_name}."):
            weight.copy_(given[name])
            continue
        old_rows, new_rows = (_rows(part, len(tensor)) for part, tensor in ((model, given[name]), (network, weight)))
        for label in old_rows.keys() & new_rows.keys():
            weight[new_rows[label]] = given[name][old_rows[label]]
    return known


def _rows(network: Network, num_rows: int) -> dict[str | None, int]:
    """Row of each class in the classifier; None is the background, which comes first if it has a row."""
    has_background = num_rows > network.config.num_classes
    labels = [None, *network.config.class_names] if has_background else [*network.config.class_names]
    return {label: row for row, label in enumerate(labels)}
