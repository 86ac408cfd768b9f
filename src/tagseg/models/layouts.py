"""Files of weights in the layout of another package, renamed to the backbone's own names."""

import re
from collections.abc import Callable

from torch import Tensor

from tagseg.models.backbones import Backbone
from tagseg.models.backbones.timm_cnn import TimmCNN
from tagseg.models.reference_names import reference_name

# The order in which a block of efficientnet_pytorch runs its layers.
_EFFICIENTNET_ORDER = ["_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2"]


def to_own_names(state: dict[str, Tensor], name: str, backbone: Backbone) -> dict[str, Tensor]:
    """Give a file's tensors the names that the backbone has; unknown ones keep theirs.

    Args:
        state: tensors by the file's names: the backbone's own, the authors', timm's or torchvision's, and
            efficientnet_pytorch's for EfficientNet.
        name: the backbone's name.
        backbone: the backbone.
    """
    own = list(backbone.state_dict())
    renamed = {reference_name(f"backbone.{key}", name): key for key in own}
    if "_conv_stem.weight" in state:
        if not name.startswith("tf_efficientnet"):
            raise ValueError(
                f"these weights were trained with TensorFlow's padding, which {name} does not have; "
                "use the backbone tf_efficientnet_lite0"
            )
        # What comes after the blocks is the classifier's.
        state = {key: value for key, value in state.items() if not re.match(r"_(conv_head|bn1|fc)\.", key)}
        renamed |= _by_order(state, own, _efficientnet_position)
    elif "features.0.0.weight" in state and name.startswith("mobilenetv2"):
        state = {key: value for key, value in state.items() if not re.match(r"features\.18\.|classifier\.", key)}
        renamed |= _by_order(state, own, _numbers)
    elif isinstance(backbone, TimmCNN):
        # As a feature extractor timm joins some names (`stem.0` is `stem_0`) and leaves out what comes after the last
        # feature.
        joined = {_joined(key.removeprefix("net.")): key for key in own}
        renamed |= {key: joined[_joined(key)] for key in state if _joined(key) in joined}
        after = {key for key in backbone.whole_names(name) if _joined(key) not in joined}
        state = {key: value for key, value in state.items() if key not in after}
    return {renamed.get(key, key): value for key, value in state.items()}


def _joined(name: str) -> str:
    return name.replace(".", "_")


def _by_order(state: dict[str, Tensor], own: list[str], position: Callable[[str], list[int]]) -> dict[str, str]:
    """Pair the layers of two layouts of one architecture by the order in which they run.

    Both number their layers; a pair that does not belong together has other tensors, and loading refuses it.
    """
    theirs = sorted({key.rpartition(".")[0] for key in state}, key=position)
    ours = list(dict.fromkeys(key.rpartition(".")[0] for key in own))
    layers = dict(zip(theirs, ours, strict=False))
    return {
        key: f"{layers[layer]}.{kind}" for key in state for layer, _, kind in [key.rpartition(".")] if layer in layers
    }


def _numbers(layer: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", layer)]


def _efficientnet_position(layer: str) -> list[int]:
    if not layer.startswith("_blocks."):
        return [-1, ["_conv_stem", "_bn0"].index(layer)]
    _, block, name = layer.split(".")
    return [int(block), _EFFICIENTNET_ORDER.index(name)]
