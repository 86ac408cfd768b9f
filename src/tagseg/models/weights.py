"""Backbone weights from torchvision, timm or a file; a file that does not fit is refused with the names that do not."""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import torchvision
from safetensors import safe_open
from timm.models import adapt_input_conv
from torch import Tensor, nn

from tagseg.errors import unknown_name
from tagseg.models.backbones import Backbone, ResNet
from tagseg.models.backbones.timm_cnn import TimmCNN
from tagseg.models.layouts import to_own_names

SUFFIXES = (".safetensors", ".pth", ".pt")
# An ImageNet file carries its classifier, which no backbone has, and counters that nothing reads.
_CLASSIFIER = re.compile(r"^(fc|fc8|linear1000|classifier|head|last_linear)\.|num_batches_tracked$")


def load_pretrained(backbone: Backbone, name: str, source: bool | str | Path) -> None:
    """Fill a backbone with pretrained weights.

    Args:
        backbone: what to fill.
        name: the backbone's name.
        source: True for the usual ImageNet weights of that name, the name of a set of torchvision's weights, or a file.
    """
    if source is not True and Path(str(source)).suffix in SUFFIXES:
        state, metadata = read_weights(Path(str(source)))
        if isinstance(backbone, ResNet):
            backbone.set_stride_on(metadata.get("stride_on", "conv2"))
        fit(backbone, to_own_names(state, name, backbone), origin=str(source))
    elif isinstance(backbone, TimmCNN):
        if source is not True:
            raise ValueError(
                f"pretrained={source!r} is neither True nor a .safetensors or .pth file; timm's sets of weights are "
                f"chosen by the backbone's tag, for example {name.split('.')[0]}.TAG"
            )
        with _download(name):
            backbone.load_timm_weights(name)
    else:
        state, origin = _torchvision_weights(name, source)
        fit(backbone, to_own_names(state, name, backbone), origin=origin)


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors or PyTorch file, and its metadata. Nothing in the file is ever executed."""
    if not path.is_file():
        raise ValueError(f"no file of weights at {path}; give the path of a .safetensors or .pth file")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} is not a file of weights; give a run's folder, or a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a broken file can fail in any way
        raise ValueError(
            f"{path} is not a readable file of weights: it is damaged, or holds more than tensors"
        ) from None
    state = state.get("state_dict", state) if isinstance(state, Mapping) else state
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} does not hold a dictionary of tensors, so it is not a file of weights")
    # Networks that were trained on several GPUs are saved with this prefix.
    return {key.removeprefix("module."): value for key, value in state.items()}, {}


def fit(module: nn.Module, state: dict[str, Tensor], *, origin: str) -> None:
    """Load tensors that fit one by one, or fail and name all that do not.

    Args:
        module: what to fill.
        state: tensors by the module's own names; a classifier among them is left out.
        origin: where they come from, for the error.
    """
    wanted = {name: tensor for name, tensor in module.state_dict().items() if not name.endswith("num_batches_tracked")}
    given = {name: tensor for name, tensor in state.items() if name in wanted or not _CLASSIFIER.search(name)}
    missing = [name for name in wanted if name not in given]
    optional = getattr(module, "optional_weights", ())
    if missing and all(name.startswith(optional) for name in missing):
        warnings.warn(f"{origin} has no weights for {', '.join(missing)}: they stay random", stacklevel=3)
        missing = []
    unexpected = [name for name in given if name not in wanted]
    for name in list(given):
        if name in wanted and _is_input_of_other_channels(given[name], wanted[name]):
            given[name] = adapt_input_conv(wanted[name].shape[1], given[name].float())
    misshapen = [
        f"{name} {list(given[name].shape)} instead of {list(wanted[name].shape)}"
        for name in wanted
        if name in given and given[name].shape != wanted[name].shape
    ]
    problems = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(problems.values()):
        found = "; ".join(f"{len(names)} {kind}: {_some(names)}" for kind, names in problems.items() if names)
        raise ValueError(f"{origin} does not fit this network; {found}")
    module.load_state_dict(given, strict=False)


def _torchvision_weights(name: str, source: bool | str | Path) -> tuple[dict[str, Tensor], str]:
    if name not in torchvision.models.list_models():
        raise ValueError(
            f"no registry has ImageNet weights for {name}; pass pretrained= the path of the authors' .pth file or of a "
            ".safetensors file"
        )
    sets = torchvision.models.get_model_weights(name)
    wanted = "IMAGENET1K_V1" if source is True else str(source)
    if wanted not in sets.__members__:
        known = [weights.name for weights in sets]
        raise unknown_name(f"set of weights for {name}", wanted, known, more=" and .safetensors or .pth files")
    with _download(name):
        return dict(sets[wanted].get_state_dict(progress=True, check_hash=True)), f"torchvision's {name} {wanted}"


@contextmanager
def _download(name: str) -> Iterator[None]:
    """Say in one line what to do where a download fails, in whatever way it does."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"the ImageNet weights of {name} could not be downloaded ({_first_line(error)}); check the network, give "
            "a file by pretrained=PATH, or start from random weights by pretrained=false"
        ) from None


def _is_input_of_other_channels(given: Tensor, wanted: Tensor) -> bool:
    """Whether these are the first convolution's filters, of RGB, where the network takes other channels."""
    if given.dim() != 4 or wanted.dim() != 4 or given.shape[1] != 3 or wanted.shape[1] == 3:
        return False
    return given.shape[0] == wanted.shape[0] and given.shape[2:] == wanted.shape[2:]


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
