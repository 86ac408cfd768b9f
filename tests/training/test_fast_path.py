"""The fast path of training follows the plain one: every mask refined, every class's logits at full size."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tagseg
from tagseg.models import Network
from tagseg.training.augment import TrainingPictures, finish
from tagseg.training.losses import classification_loss
from tagseg.training.objective import Tags, objective, pseudo_of_own
from tagseg.training.pseudo import IGNORE, pseudo_labels
from tagseg.training.recipe import Recipe
from tagseg.training.start import build
from tests.memory import PeakBytes
from tests.training.small import small_data, small_recipe

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def plain(network: Network, pictures: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    """The losses as METHOD reads: nothing left out, nothing fused."""
    settings = recipe.supervision
    out = network(network.normalise(pictures), full_size=False)
    small = F.interpolate(pictures, size=out.masks.shape[-2:], mode="bilinear", align_corners=True)
    refined = tagseg.pamr(small.cpu(), out.masks.detach().cpu(), iterations=settings.iterations).to(pictures.device)
    size = (pictures.shape[-2], pictures.shape[-1])
    pseudo = pseudo_labels(refined, tags, size=size, lowest=settings.lowest)
    enlarged = F.interpolate(out.logits, size=size, mode="bilinear", align_corners=True)
    pixels = F.cross_entropy(enlarged, pseudo, ignore_index=IGNORE, reduction="none")
    losses = []
    for pixel, label, own in zip(pixels, pseudo, tags, strict=True):
        counts = torch.bincount(label[label != IGNORE], minlength=enlarged.shape[1])
        weights = (counts.sum() - counts) / (1 + counts.sum())
        complete = torch.equal(counts > 0, torch.cat([own.new_ones(1), own]).bool())
        weighted = pixel * torch.where(label == IGNORE, 0, weights[label.clamp_min(0)])
        losses.append(weighted.mean() * complete)
    return classification_loss(out.scores, tags) + torch.stack(losses).mean()


def fast(network: Network, pictures: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    return objective(
        network,
        pictures,
        Tags.of(tags.cpu(), pictures.device),
        normalise=network.normalise,
        settings=recipe.supervision,
    ).total


def curve(how: Callable[..., Tensor], device: str, steps: int) -> Tensor:
    """The losses of so many steps with one seed."""
    recipe = small_recipe("supervision.iterations=4", "supervision.lowest=0.05")
    data, _ = small_data()
    crops = TrainingPictures(data, recipe.pictures, seed=0)
    torch.manual_seed(0)
    network = build(recipe.model, data.classes).to(device).train()
    optimiser = torch.optim.SGD(network.parameter_groups(0.003), lr=0.003, momentum=0.9)
    losses = []
    for step in range(steps):
        batch, draws, tags = (
            torch.stack(part) for part in zip(*(crops[0, (8 * step + i) % len(data)] for i in range(8)), strict=True)
        )
        torch.manual_seed(step)
        pictures = finish(batch, draws, recipe.pictures, torch.device(device))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = how(network, pictures, tags.to(device), recipe)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.detach().cpu())
    return torch.stack(losses)


@pytest.mark.parametrize("device", DEVICES)
def test_fifty_steps_have_the_same_losses(device: str) -> None:
    expected, found = curve(plain, device, 50), curve(fast, device, 50)
    assert (expected[:5] - found[:5]).abs().max() < 1e-4
    if device == "cpu":
        assert (expected - found).abs().max() < 1e-3 * expected.mean()
    else:  # bfloat16 keeps eight bits, and what they lose changes pseudo labels, and so the steps that follow
        assert (expected - found).abs().mean() < 0.05 * expected.mean()


def test_supervision_costs_the_same_however_many_classes_there_are() -> None:
    def peak(classes: int) -> int:
        tags = torch.zeros(2, classes)
        tags[:, [3, 7]] = 1
        masks = torch.randn(2, 1 + classes, 16, 16).softmax(1)
        own, pictures = Tags.of(tags, torch.device("cpu")), torch.rand(2, 3, 64, 64)
        with PeakBytes() as memory:
            pseudo_of_own(pictures, masks, own, small_recipe().supervision)
        return int(memory.peak)

    assert peak(80) == peak(20)
