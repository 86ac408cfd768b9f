"""The objective equals a plain implementation that refines every mask and uses all logits at full size."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tagseg
from tagseg.models import Network, build_network
from tagseg.training.losses import classification_loss
from tagseg.training.objective import BatchLabels, batch_pseudo_labels, compute_losses
from tagseg.training.pseudo_labels import IGNORED, pseudo_labels
from tagseg.training.recipe import Recipe
from tagseg.training.transforms import TrainingImages, finish_batch
from tests.conftest import needs_gpu
from tests.memory import PeakBytes
from tests.training.small import small_data, small_recipe


def plain(network: Network, images: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    """Loss without any shortcut."""
    settings = recipe.pseudo_labels
    out = network(network.normalize(images), full_size=False)
    small = F.interpolate(images, size=out.masks.shape[-2:], mode="bilinear", align_corners=True)
    refined = tagseg.pamr(small.cpu(), out.masks.detach().cpu(), iterations=settings.iterations).to(images.device)
    size = (images.shape[-2], images.shape[-1])
    pseudo = pseudo_labels(refined, tags, size=size, lowest=settings.min_threshold)
    enlarged = F.interpolate(out.logits, size=size, mode="bilinear", align_corners=True)
    pixels = F.cross_entropy(enlarged, pseudo, ignore_index=IGNORED, reduction="none")
    losses = []
    for pixel, label, own in zip(pixels, pseudo, tags, strict=True):
        counts = torch.bincount(label[label != IGNORED], minlength=enlarged.shape[1])
        weights = (counts.sum() - counts) / (1 + counts.sum())
        complete = torch.equal(counts > 0, torch.cat([own.new_ones(1), own]).bool())
        weighted = pixel * torch.where(label == IGNORED, 0, weights[label.clamp_min(0)])
        losses.append(weighted.mean() * complete)
    return classification_loss(out.scores, tags) + torch.stack(losses).mean()


def fast(network: Network, images: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    return compute_losses(
        network,
        images,
        BatchLabels.on_device(tags.cpu(), images.device),
        normalize=network.normalize,
        settings=recipe.pseudo_labels,
    ).total


class Steps:
    """Seeded training step by step."""

    def __init__(self, device: str, *, half: bool) -> None:
        self.recipe = small_recipe("pseudo_labels.iterations=4", "pseudo_labels.min_threshold=0.05")
        self.data, _ = small_data()
        self.crops = TrainingImages(self.data, self.recipe.transforms, seed=0)
        self.device, self.half = device, half
        torch.manual_seed(0)
        self.network = build_network(self.recipe.model, self.data.classes).to(device).train()
        self.optimizer = torch.optim.SGD(self.network.parameter_groups(0.003), lr=0.003, momentum=0.9)

    def loss(self, objective: Callable[..., Tensor], step: int) -> Tensor:
        """Loss of a step's batch, with its gradient in the network; the seed of the gate depends on the step alone."""
        places = [(8 * step + i) % len(self.data) for i in range(8)]
        batch, draws, tags = (torch.stack(part) for part in zip(*(self.crops[0, i] for i in places), strict=True))
        torch.manual_seed(step)
        images = finish_batch(batch, draws, self.recipe.transforms, torch.device(self.device))
        with torch.autocast(self.device, torch.bfloat16, enabled=self.half):
            loss = objective(self.network, images, tags.to(self.device), self.recipe)
        loss.backward()
        return loss.detach().cpu()

    def gradient(self) -> Tensor:
        return torch.cat([p.grad.flatten() for p in self.network.parameters() if p.grad is not None])

    def advance(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def curve(objective: Callable[..., Tensor], device: str, steps: int, *, half: bool = False) -> Tensor:
    """Losses of seeded steps."""
    training, losses = Steps(device, half=half), []
    for step in range(steps):
        losses.append(training.loss(objective, step))
        training.advance()
    return torch.stack(losses)


@pytest.mark.gpu
@needs_gpu
def test_loss_and_gradient_equal_the_plain_ones_in_half_precision() -> None:
    """Each step starts from the same weights, so that differences do not grow."""
    training = Steps("cuda", half=True)
    for step in range(50):
        expected = training.loss(plain, step)
        plain_gradient = training.gradient()
        training.optimizer.zero_grad()
        loss = training.loss(fast, step)
        assert abs(loss - expected) < 1e-3 * expected
        assert (training.gradient() - plain_gradient).norm() < 0.01 * plain_gradient.norm()
        training.advance()


def test_fifty_steps_have_the_losses_of_the_plain_objective() -> None:
    expected, losses = curve(plain, "cpu", 50), curve(fast, "cpu", 50)
    assert (expected[:5] - losses[:5]).abs().max() < 1e-4
    assert (expected - losses).abs().max() < 1e-3 * expected.mean()


@pytest.mark.gpu
@needs_gpu
def test_losses_in_half_precision_differ_by_less_than_its_rounding() -> None:
    """On a GPU two runs of one objective differ too, since sums have no fixed order."""
    expected, losses, exact = (
        curve(objective, "cuda", 50, half=half) for objective, half in ((plain, True), (fast, True), (plain, False))
    )
    assert (expected - losses).abs().mean() < (expected - exact).abs().mean()


def test_memory_of_pseudo_labels_does_not_depend_on_the_number_of_classes() -> None:
    def peak(classes: int) -> int:
        tags = torch.zeros(2, classes)
        tags[:, [3, 7]] = 1
        masks = torch.randn(2, 1 + classes, 16, 16).softmax(1)
        labels, images = BatchLabels.on_device(tags, torch.device("cpu")), torch.rand(2, 3, 64, 64)
        with PeakBytes() as memory:
            batch_pseudo_labels(images, masks, labels, small_recipe().pseudo_labels)
        return int(memory.peak)

    assert peak(80) == peak(20)
