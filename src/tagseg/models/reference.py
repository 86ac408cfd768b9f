"""Load the paper's authors' own checkpoint files."""

from pathlib import Path

from tagseg.data.voc import VOC_CLASSES
from tagseg.errors import unknown_name
from tagseg.models.backbones import PAPER_BACKBONES
from tagseg.models.build import build_cam, build_model
from tagseg.models.cam import CAM
from tagseg.models.reference_names import reference_name
from tagseg.models.segmenter import Segmenter
from tagseg.models.weights import fit, read_weights

# A tensor that only this one of the paper's backbones has, by the authors' name; ResNet-101 has all of ResNet-50's.
_SIGNS = {
    "wideresnet38": "conv1a.weight",
    "vgg16": "conv1_1.weight",
    "resnet101": "layer3.22.conv1.weight",
    "resnet50": "layer3.5.conv1.weight",
}


def load_reference_checkpoint(
    path: str | Path, backbone: str | None = None, *, classes: int = 20, psi: float = 0.3, trained: bool = False
) -> Segmenter | CAM:
    """A model from a `.pth` file of the published implementation; a trained one in evaluation mode.

    Args:
        path: a trained network of the method, a trained CAM baseline, or the ImageNet weights that training starts
            from; the last gives the method's network with a pretrained backbone and a random head.
        backbone: which of the paper's backbones it is; by default it is recognised by the names of its tensors.
        classes: how many classes the random head gets; a trained network brings its own number, and 20 are VOC's.
        psi: the gate's mixing rate that a trained network was trained with: a file does not say.
        trained: refuse ImageNet weights.
    """
    if backbone is not None and backbone not in PAPER_BACKBONES:
        raise unknown_name("backbone of the paper", backbone, PAPER_BACKBONES)
    path = Path(path)
    state, _ = read_weights(path)
    backbone = backbone or next((name for name, sign in _SIGNS.items() if sign in state), None)
    if backbone is None:
        raise ValueError(f"{path} is not of the published implementation: it has the tensors of none of its backbones")
    head, head_of_cam = (state.get(name) for name in ("last_conv.8.weight", "mask_branch.0.weight"))
    model: Segmenter | CAM
    if head is not None:
        model = build_model(backbone, _names(len(head)), psi=psi)
    elif head_of_cam is not None:  # the classifier is stored three times under three names
        model = build_cam(backbone, _names(len(head_of_cam)))
        state["fc8.weight"] = state.pop("mask_branch.0.weight")
        state.pop("cls_branch.2.weight", None)
    elif trained:
        raise ValueError(f"{path} holds ImageNet weights and no trained model; train one from it by pretrained=PATH")
    else:
        return build_model(backbone, classes, psi=psi, pretrained=path)
    own_names = {reference_name(name, backbone): name for name in model.state_dict()}
    fit(model, {own_names.get(name, name): tensor for name, tensor in state.items()}, origin=str(path))
    return model.eval()


def _names(classes: int) -> int | tuple[str, ...]:
    return VOC_CLASSES if classes == len(VOC_CLASSES) else classes
