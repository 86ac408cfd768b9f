"""The published implementation: its names of tensors, and its checkpoint files."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tagseg.data.voc import VOC_CLASSES
from tagseg.errors import WeightsError, unknown_name
from tagseg.models.backbones import PAPER_BACKBONES

if TYPE_CHECKING:
    from tagseg.models.cam import CAM
    from tagseg.models.segmenter import Segmenter

# A tensor, by the authors' name, that only this backbone has; ResNet-101 has all tensors of ResNet-50.
_TELLTALE_TENSORS = {
    "wideresnet38": "conv1a.weight",
    "vgg16": "conv1_1.weight",
    "resnet101": "layer3.22.conv1.weight",
    "resnet50": "layer3.5.conv1.weight",
}
_WIDERESNET = [
    (r"conv1\.", "conv1a."),
    (r"norm\.", "bn7."),
    (r"stage(\d)\.0\.", r"b\1."),
    (r"stage(\d)\.(\d)\.", r"b\1_\2."),
]
_WIDERESNET_BLOCK = [
    (r"(b\d.*)norms\.0\.", r"\1bn_branch2a."),
    (r"(b\d.*)norms\.1\.", r"\1bn_branch2b1."),
    (r"(b\d.*)norms\.2\.", r"\1bn_branch2b2."),
    (r"(b\d.*)convs\.0\.", r"\1conv_branch2a."),
    (r"(b\d.*)convs\.1\.", r"\1conv_branch2b1."),
    (r"(b\d.*)convs\.2\.", r"\1conv_branch2b2."),
    (r"(b\d.*)shortcut\.", r"\1conv_branch1."),
]
_VGG = [
    (rf"features\.{index}\.", f"conv{stage}_{layer}.")
    for stage, indices in enumerate(((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28)), 1)
    for layer, index in enumerate(indices, 1)
]
_HEAD = [
    (r"aspp\.convs\.4\.", "aspp.global_avg_pool."),
    *((rf"aspp\.convs\.{i}\.0\.", f"aspp.aspp{i + 1}.atrous_conv.") for i in range(4)),
    *((rf"aspp\.convs\.{i}\.1\.", f"aspp.aspp{i + 1}.bn.") for i in range(4)),
    (r"aspp\.project\.0\.", "aspp.conv1."),
    (r"aspp\.project\.1\.", "aspp.bn1."),
    (r"shallow\.cues\.", "shallow_mask.fc_deep."),
    (r"shallow\.shallow\.", "shallow_mask.fc_skip.0."),
    (r"shallow\.norm\.", "shallow_mask.fc_skip.1."),
    (r"shallow\.merge\.", "shallow_mask.fc_cls."),
    (r"skip\.", "fc8_skip."),
    (r"fuse\.", "fc8_x."),
    (r"decoder\.", "last_conv."),
    (r"classifier\.", "fc8."),
]


def reference_name(name: str, backbone: str) -> str:
    """Name of a tensor or module in the authors' code.

    Args:
        name: Its name here, for example `backbone.stage3.0.convs.1.weight`.
        backbone: Name of the backbone.
    """
    name += "."  # so that the name of a module matches like a prefix
    if not name.startswith("backbone."):
        name = _rename(name, _HEAD)
    else:
        name = name.removeprefix("backbone.")
        if backbone == "wideresnet38":
            name = _rename(_rename(name, _WIDERESNET), _WIDERESNET_BLOCK)
        elif backbone == "vgg16":
            name = _rename(name, _VGG)
    return name.removesuffix(".")


def load_reference_checkpoint(
    path: str | Path, backbone: str | None = None, *, classes: int = 20, psi: float = 0.3, trained: bool = False
) -> "Segmenter | CAM":
    """Load a `.pth` file of the published implementation; a trained network is in evaluation mode.

    Args:
        path: A trained network of the method, a trained CAM baseline, or ImageNet weights, which give the method's
            network with a pretrained backbone and a random head.
        backbone: Which of the paper's backbones it is; by default the names of its tensors tell.
        classes: Number of classes of the random head; a trained network has its own number, and 20 are VOC's.
        psi: Mixing rate of the gate in training, which the file does not store.
        trained: Refuse ImageNet weights.
    """
    # `build` imports `pretrained`, which imports `reference_name`.
    from tagseg.models.build import build_cam, build_model
    from tagseg.models.pretrained import load_matching_state, read_weights

    if backbone is not None and backbone not in PAPER_BACKBONES:
        raise unknown_name("backbone of the paper", backbone, PAPER_BACKBONES)
    path = Path(path)
    state, _ = read_weights(path)
    backbone = backbone or next((name for name, tensor in _TELLTALE_TENSORS.items() if tensor in state), None)
    if backbone is None:
        raise WeightsError(f"{path} is not of the published implementation: no backbone of the paper has its tensors")
    head, cam_head = (state.get(name) for name in ("last_conv.8.weight", "mask_branch.0.weight"))
    model: Segmenter | CAM
    if head is not None:
        model = build_model(backbone, _class_names(len(head)), psi=psi, finetune=True)
    elif cam_head is not None:  # the file stores the classifier three times under three names
        model = build_cam(backbone, _class_names(len(cam_head)), finetune=True)
        state["fc8.weight"] = state.pop("mask_branch.0.weight")
        state.pop("cls_branch.2.weight", None)
    elif trained:
        raise WeightsError(
            f"{path} holds ImageNet weights and no trained model", "train one from these weights with {pretrained}"
        )
    else:
        return build_model(backbone, classes, psi=psi, pretrained=path)
    names = {reference_name(name, backbone): name for name in model.state_dict()}
    load_matching_state(model, {names.get(name, name): tensor for name, tensor in state.items()}, origin=str(path))
    return model.eval()


def _class_names(count: int) -> int | tuple[str, ...]:
    return VOC_CLASSES if count == len(VOC_CLASSES) else count


def _rename(name: str, rules: list[tuple[str, str]]) -> str:
    """Apply the first rule that matches the start of a name."""
    for pattern, replacement in rules:
        renamed, matched = re.subn("^" + pattern, replacement, name, count=1)
        if matched:
            return renamed
    return name
