"""Curves and images for TensorBoard: what the journal says, and Fig. 6 of the paper for a few images."""

from pathlib import Path

import torch
from torch import Tensor

from tagseg.data.dataset import ImageDataset
from tagseg.models import Network
from tagseg.models.network import enlarge
from tagseg.training.augment import ValidationImages
from tagseg.training.journal import read_journal
from tagseg.training.objective import pseudo_of, refine
from tagseg.training.pseudo import IGNORE
from tagseg.training.recipe import Recipe

SHOWN = 4
FOLDER = "tensorboard"


class Board:
    """Writes one epoch after another; called by the training loop."""

    def __init__(self, out: Path, data: ImageDataset, recipe: Recipe) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("TensorBoard is not installed; install tagseg[tracking], or train without it") from None
        self._run, self._recipe = out, recipe
        self._writer = SummaryWriter(out / FOLDER)
        self._written = len(read_journal(out))  # of a run that goes on, an earlier board has the rest
        chosen = [ValidationImages(data, recipe.transforms)[i] for i in range(min(SHOWN, len(data)))]
        self._images = torch.stack([image for image, _ in chosen]).float() / 255
        self._tags = torch.stack([tags for _, tags in chosen])

    def __call__(self, network: Network, epoch: int) -> None:
        """Write what is new."""
        lines = read_journal(self._run)
        for line in lines[self._written :]:
            for name, value in line.items():
                if name not in ("kind", "step", "epoch", "session", "processes") and value is not None:
                    self._writer.add_scalar(f"{line['kind']}/{name}", value, line["step"])
        self._written = len(lines)
        self._writer.add_images("input | prediction | refinement | pseudo labels", self._panels(network), epoch)
        self._writer.flush()

    @torch.no_grad()
    def _panels(self, network: Network) -> Tensor:
        """The stages of each image side by side, [B, 3, H, 4 W] or, for CAM, [B, 3, H, 2 W]."""
        device = next(network.parameters()).device
        images, tags = self._images.to(device), self._tags.to(device)
        size = (images.shape[-2], images.shape[-1])
        was_training = network.training
        out = network.eval()(network.normalise(images), full_size=False)
        network.train(was_training)
        panels = [images, _colour(enlarge(out.masks, size).argmax(1), images)]
        if self._recipe.model.method != "cam":
            refined = refine(images, out.masks, self._recipe.pseudo_labels)
            panels.append(_colour(enlarge(refined, size).argmax(1), images))
            panels.append(_colour(pseudo_of(refined, tags, images, self._recipe.pseudo_labels), images))
        return torch.cat(panels, dim=-1).cpu()


def _colour(labels: Tensor, images: Tensor) -> Tensor:
    """Labels as colours over the image; background and ignored pixels show it, the latter dimmed."""
    hues = torch.rand(int(labels.max()) + 2, 3, generator=torch.Generator().manual_seed(1)).to(images)
    colours = hues[labels.clamp_min(0)].movedim(-1, 1)
    weight = (labels > 0)[:, None] * 0.7
    shown = images * (1 - weight) + colours * weight
    return torch.where((labels == IGNORE)[:, None], 0.35 * images, shown)
