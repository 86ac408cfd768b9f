"""The fast path of training follows the plain one: every mask refined, every class's logits at full size."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tagseg
from tagseg.models import Network
from tagseg.training.augment import TrainingImages, finish
from tagseg.training.losses import classification_loss
from tagseg.training.objective import Tags, objective, pseudo_of_own
from tagseg.training.pseudo import IGNORE, pseudo_labels
from tagseg.training.recipe import Recipe
from tagseg.training.start import build
from tests.memory import PeakBytes
from tests.training.small import small_data, small_recipe

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def plain(network: Network, images: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    """The losses as METHOD reads: nothing left out, nothing fused."""
    settings = recipe.pseudo_labels
    out = network(network.normalise(images), full_size=False)
    small = F.interpolate(images, size=out.masks.shape[-2:], mode="bilinear", align_corners=True)
    refined = tagseg.pamr(small.cpu(), out.masks.detach().cpu(), iterations=settings.iterations).to(images.device)
    size = (images.shape[-2], images.shape[-1])
    pseudo = pseudo_labels(refined, tags, size=size, lowest=settings.min_threshold)
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


def fast(network: Network, images: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    return objective(
        network,
        images,
        Tags.of(tags.cpu(), images.device),
        normalise=network.normalise,
        settings=recipe.pseudo_labels,
    ).total


class Steps:
    """Training from one seed, step by step: the network, its optimiser and the batches that come."""

    def __init__(self, device: str, *, half: bool) -> None:
        self.recipe = small_recipe("pseudo_labels.iterations=4", "pseudo_labels.min_threshold=0.05")
        self.data, _ = small_data()
        self.crops = TrainingImages(self.data, self.recipe.transforms, seed=0)
        self.device, self.half = device, half
        torch.manual_seed(0)
        self.network = build(self.recipe.model, self.data.classes).to(device).train()
        self.optimiser = torch.optim.SGD(self.network.parameter_groups(0.003), lr=0.003, momentum=0.9)

    def loss(self, how: Callable[..., Tensor], step: int) -> Tensor:
        """What a path says of a step's batch, its gradient left in the network; the gate draws by the step alone."""
        places = [(8 * step + i) % len(self.data) for i in range(8)]
        batch, draws, tags = (torch.stack(part) for part in zip(*(self.crops[0, i] for i in places), strict=True))
        torch.manual_seed(step)
        images = finish(batch, draws, self.recipe.transforms, torch.device(self.device))
        with torch.autocast(self.device, torch.bfloat16, enabled=self.half):
            loss = how(self.network, images, tags.to(self.device), self.recipe)
        loss.backward()
        return loss.detach().cpu()

    def gradient(self) -> Tensor:
        return torch.cat([p.grad.flatten() for p in self.network.parameters() if p.grad is not None])

    def advance(self) -> None:
        self.optimiser.step()
        self.optimiser.zero_grad()


def curve(how: Callable[..., Tensor], device: str, steps: int, *, half: bool = False) -> Tensor:
    """The losses of so many steps with one seed."""
    training, losses = Steps(device, half=half), []
    for step in range(steps):
        losses.append(training.loss(how, step))
        training.advance()
    return torch.stack(losses)


@NEEDS_GPU
def test_each_of_fifty_steps_in_half_precision_has_the_loss_and_the_gradient_of_the_plain_path() -> None:
    """From the same weights: no difference grows from step to step."""
    training = Steps("cuda", half=True)
    for step in range(50):
        expected = training.loss(plain, step)
        slope = training.gradient()
        training.optimiser.zero_grad()
        found = training.loss(fast, step)
        assert abs(found - expected) < 1e-3 * expected
        assert (training.gradient() - slope).norm() < 0.01 * slope.norm()
        training.advance()


def test_fifty_steps_have_the_same_losses() -> None:
    expected, found = curve(plain, "cpu", 50), curve(fast, "cpu", 50)
    assert (expected[:5] - found[:5]).abs().max() < 1e-4
    assert (expected - found).abs().max() < 1e-3 * expected.mean()


@NEEDS_GPU
def test_fifty_steps_in_half_precision_differ_by_less_than_half_precision_does() -> None:
    """On a GPU two runs of one path differ too: sums have no fixed order, and pseudo labels tip over."""
    expected, found, exact = (
        curve(how, "cuda", 50, half=half) for how, half in ((plain, True), (fast, True), (plain, False))
    )
    assert (expected - found).abs().mean() < (expected - exact).abs().mean()


def test_supervision_costs_the_same_however_many_classes_there_are() -> None:
    def peak(classes: int) -> int:
        tags = torch.zeros(2, classes)
        tags[:, [3, 7]] = 1
        masks = torch.randn(2, 1 + classes, 16, 16).softmax(1)
        own, images = Tags.of(tags, torch.device("cpu")), torch.rand(2, 3, 64, 64)
        with PeakBytes() as memory:
            pseudo_of_own(images, masks, own, small_recipe().pseudo_labels)
        return int(memory.peak)

    assert peak(80) == peak(20)
