"""Backbone weights from torchvision, timm or a file, whatever layout the file has."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from tagseg._hub import is_reachable
from tagseg.errors import ConfigError, WeightsError, first_line, unknown_name
from tagseg.models.backbones import Backbone, EfficientNetLite0, ResNet, TimmCNN, TimmViT
from tagseg.models.backbones.timm_cnn import timm_classifier_names
from tagseg.models.reference import reference_name

logger = logging.getLogger(__name__)

WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt")
# Tensors of ImageNet files that no backbone has: the classifier's, and counters that nothing reads.
_CLASSIFIER = re.compile(r"^(fc|fc8|linear1000|classifier|head|last_linear)\.|num_batches_tracked$")
# Layers of a block of efficientnet_pytorch, in the order in which they run.
_EFFICIENTNET_ORDER = ["_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2"]


def load_pretrained(backbone: Backbone, name: str, source: bool | str) -> None:
    """Load pretrained weights into a backbone.

    Args:
        backbone: Backbone to fill.
        name: Its name.
        source: True for the usual ImageNet weights of that name, the name of torchvision weights, or a file.
    """
    if source is not True and Path(str(source)).suffix in WEIGHT_SUFFIXES:
        state, metadata = read_weights(Path(str(source)))
        if isinstance(backbone, ResNet):
            backbone.set_stride_on(metadata.get("stride_on", "conv2"))
        load_matching_state(backbone, rename_tensors(state, name, backbone), origin=str(source))
    elif isinstance(backbone, TimmCNN | TimmViT | EfficientNetLite0):
        if source is not True:
            raise ConfigError(
                f"pretrained={source!r} is neither true nor default, a run folder or a .safetensors or .pth file",
                "name one of them; timm's weights are chosen by the backbone's tag, for example resnet18.TAG",
            )
        with downloading(name):
            state = backbone.download_timm_weights(name)
        backbone.net.load_state_dict(state)
    else:
        state, origin = _torchvision_weights(name, source)
        load_matching_state(backbone, rename_tensors(state, name, backbone), origin=origin)


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors or PyTorch file; no code in the file is executed."""
    if path.suffix not in WEIGHT_SUFFIXES:
        raise WeightsError(f"{path} is not a file of weights", "give a run folder, or a .safetensors or .pth file")
    if not path.is_file():
        raise WeightsError(f"no file of weights at {path}", "give the path of a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged file can raise anything
        raise WeightsError(
            f"{path} is not a readable file of weights: it is damaged, or holds more than tensors"
        ) from None
    state = state.get("state_dict", state) if isinstance(state, Mapping) else state
    if not isinstance(state, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise WeightsError(f"{path} does not hold a dictionary of tensors, so it is not a file of weights")
    # DataParallel adds this prefix.
    return {key.removeprefix("module."): value for key, value in state.items()}, {}


def load_matching_state(module: nn.Module, state: dict[str, Tensor], *, origin: str) -> None:
    """Load tensors that match the module one by one.

    Args:
        module: Module to fill.
        state: Tensors by the module's names; a classifier among them is ignored.
        origin: Where they come from, for the error.

    Raises:
        WeightsError: It names the tensors that do not match.
    """
    expected = {
        name: tensor for name, tensor in module.state_dict().items() if not name.endswith("num_batches_tracked")
    }
    given = {name: tensor for name, tensor in state.items() if name in expected or not _CLASSIFIER.search(name)}
    missing = [name for name in expected if name not in given]
    optional = getattr(module, "optional_weights", ())
    if missing and all(name.startswith(optional) for name in missing):
        logger.warning("%s has no weights for %s: they stay random", origin, ", ".join(missing))
        missing = []
    unexpected = [name for name in given if name not in expected]
    for name in list(given):
        if name in expected and _is_rgb_stem(given[name], expected[name]):
            from timm.models import adapt_input_conv  # takes seconds to import

            given[name] = adapt_input_conv(expected[name].shape[1], given[name].float())
    misshapen = [
        f"{name} {list(given[name].shape)} instead of {list(expected[name].shape)}"
        for name in expected
        if name in given and given[name].shape != expected[name].shape
    ]
    problems = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(problems.values()):
        details = "; ".join(f"{len(names)} {kind}: {_shorten(names)}" for kind, names in problems.items() if names)
        raise WeightsError(
            f"{origin} does not fit this network; {details}", "name the weights of the network that is built"
        )
    module.load_state_dict(given, strict=False)


def rename_tensors(state: dict[str, Tensor], name: str, backbone: Backbone) -> dict[str, Tensor]:
    """Rename the tensors of a file to the backbone's names; unknown names stay.

    Args:
        state: Tensors named as in the backbone, in the authors' code, in timm or in torchvision; for EfficientNet also
            as in efficientnet_pytorch.
        name: Name of the backbone.
        backbone: The backbone.
    """
    names = list(backbone.state_dict())
    renamed = {reference_name(f"backbone.{key}", name): key for key in names}
    if "_conv_stem.weight" in state:
        if not name.startswith("tf_efficientnet"):
            raise WeightsError(
                f"these weights were trained with TensorFlow's padding, which {name} does not have",
                "use the backbone tf_efficientnet_lite0",
            )
        state = {key: value for key, value in state.items() if not re.match(r"_(conv_head|bn1|fc)\.", key)}
        renamed |= _match_by_order(state, names, _efficientnet_position)
    elif "features.0.0.weight" in state and name.startswith("mobilenetv2"):
        state = {key: value for key, value in state.items() if not re.match(r"features\.18\.|classifier\.", key)}
        renamed |= _match_by_order(state, names, _numbers)
    elif isinstance(backbone, TimmViT):
        renamed |= {key.removeprefix("net."): key for key in names}
        state = {key: value for key, value in state.items() if not key.startswith("fc_norm.")}
    elif isinstance(backbone, TimmCNN | EfficientNetLite0):
        # timm's feature extractors join some names (`stem.0` is `stem_0`) and lack the layers after the last feature.
        by_joined_name = {joined_name(key.removeprefix("net.")): key for key in names}
        renamed |= {key: by_joined_name[joined_name(key)] for key in state if joined_name(key) in by_joined_name}
        later_layers = {key for key in timm_classifier_names(name) if joined_name(key) not in by_joined_name}
        state = {key: value for key, value in state.items() if key not in later_layers}
    return {renamed.get(key, key): value for key, value in state.items()}


def joined_name(name: str) -> str:
    """Name of a tensor as timm's feature extractors join it."""
    return name.replace(".", "_")


def _match_by_order(state: dict[str, Tensor], names: list[str], position: Callable[[str], list[int]]) -> dict[str, str]:
    """Match the layers of two layouts of one architecture by the order in which they run.

    Layers that do not belong together have tensors of other shapes, which `load_matching_state` refuses.
    """
    file_layers = sorted({key.rpartition(".")[0] for key in state}, key=position)
    backbone_layers = list(dict.fromkeys(key.rpartition(".")[0] for key in names))
    layers = dict(zip(file_layers, backbone_layers, strict=False))
    return {
        key: f"{layers[layer]}.{kind}" for key in state for layer, _, kind in [key.rpartition(".")] if layer in layers
    }


def _numbers(layer: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", layer)]


def _efficientnet_position(layer: str) -> list[int]:
    stem, _, block_layer = layer.partition(".")
    block, _, name = block_layer.partition(".")
    if stem == "_blocks" and block.isdigit() and name in _EFFICIENTNET_ORDER:
        return [int(block), _EFFICIENTNET_ORDER.index(name)]
    if layer in ("_conv_stem", "_bn0"):
        return [-1, ["_conv_stem", "_bn0"].index(layer)]
    raise WeightsError(f"these weights have a layer {layer!r}, which no EfficientNet of efficientnet_pytorch has")


def _torchvision_weights(name: str, source: bool | str) -> tuple[dict[str, Tensor], str]:
    import torchvision  # takes seconds to import

    if name not in torchvision.models.list_models():
        raise ConfigError(
            f"no registry has ImageNet weights for {name}",
            "name the authors' .pth file or a .safetensors file with {pretrained}",
        )
    known = torchvision.models.get_model_weights(name)
    weights_name = "IMAGENET1K_V1" if source is True else str(source)
    if weights_name not in known.__members__:
        raise unknown_name(
            f"weights for {name}",
            weights_name,
            [weights.name for weights in known],
            more=", files of weights, run folders and model files",
        )
    url = known[weights_name].url
    cached = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    with downloading(name, url) as is_online:
        if not (is_online or cached.is_file()):
            raise OSError(f"{url} cannot be reached")
        state = known[weights_name].get_state_dict(progress=False, check_hash=True)
    return dict(state), f"torchvision's {name} {weights_name}"


@contextmanager
def downloading(name: str, url: str | None = None) -> Iterator[bool]:
    """Download weights, or read them from the cache; where the network is missing, fail at once and say what to do.

    Args:
        name: Name of the backbone.
        url: Server of the weights; the Hugging Face hub by default, whose client then reads its cache alone if there is
            no network: it would otherwise retry for a minute.

    Yields:
        Whether the server can be reached.
    """
    from huggingface_hub import constants  # slow to import
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    before = constants.HF_HUB_OFFLINE
    is_online = is_reachable(url or "")  # not where the environment sets HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = not is_online
    try:
        yield is_online
    except (OSError, EntryNotFoundError, HfHubHTTPError) as error:  # an OSError too: URLError, a missing local entry
        reason = first_line(error)
        if not is_online:
            reason = f"{url or constants.ENDPOINT} cannot be reached"
        raise WeightsError(
            f"the pretrained weights of {name} could not be downloaded ({reason})",
            "name their file with {pretrained}, start from tagseg's own model with {default_model}, or train where the "
            "network is; a copy of its cache works too (HF_HUB_CACHE, TORCH_HOME)",
        ) from None
    finally:
        constants.HF_HUB_OFFLINE = before


def _is_rgb_stem(given: Tensor, expected: Tensor) -> bool:
    """Whether `given` is the first convolution for RGB images of a network that takes other channels."""
    if given.dim() != 4 or expected.dim() != 4 or given.shape[1] != 3 or expected.shape[1] == 3:
        return False
    return given.shape[0] == expected.shape[0] and given.shape[2:] == expected.shape[2:]


def _shorten(names: list[str], limit: int = 5) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
