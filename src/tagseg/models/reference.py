"""Load the paper's authors' own checkpoint files."""

from pathlib import Path

from tagseg._checks import unknown_name
from tagseg.models.backbones import PAPER_BACKBONES
from tagseg.models.build import build_cam, build_model
from tagseg.models.cam import CAM
from tagseg.models.reference_names import reference_name
from tagseg.models.segmenter import Segmenter
from tagseg.models.weights import fit, read_weights


def load_reference_checkpoint(
    path: str | Path, backbone: str = "wideresnet38", *, classes: int = 20, psi: float = 0.3
) -> Segmenter | CAM:
    """A model from a `.pth` file of the published implementation; a trained one in evaluation mode.

    Args:
        path: a trained network of the method, a trained CAM baseline, or the ImageNet weights that training starts
            from; the last gives the method's network with a pretrained backbone and a random head.
        backbone: which of the paper's backbones it is: a file does not say.
        classes: how many classes the random head gets; a trained network brings its own number.
        psi: the gate's mixing rate that a trained network was trained with: a file does not say.
    """
    if backbone not in PAPER_BACKBONES:
        raise unknown_name("backbone of the paper", backbone, PAPER_BACKBONES)
    path = Path(path)
    state, _ = read_weights(path)
    model: Segmenter | CAM
    if "last_conv.8.weight" in state:
        model = build_model(backbone, state["last_conv.8.weight"].shape[0], psi=psi)
    elif "mask_branch.0.weight" in state:  # the classifier is stored three times under three names
        model = build_cam(backbone, state["mask_branch.0.weight"].shape[0])
        state["fc8.weight"] = state.pop("mask_branch.0.weight")
        state.pop("cls_branch.2.weight", None)
    else:
        return build_model(backbone, classes, psi=psi, pretrained=path)
    own_names = {reference_name(name, backbone): name for name in model.state_dict()}
    fit(model, {own_names.get(name, name): tensor for name, tensor in state.items()}, origin=str(path))
    return model.eval()
