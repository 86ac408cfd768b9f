"""The fast objective equals a plain one that refines every mask and resizes all logits to full size."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tagseg
from tagseg.benchmarks.timing import PeakBytes
from tagseg.data.masks import IGNORE_LABEL
from tagseg.models import Network, build_network
from tagseg.training.losses import classification_loss
from tagseg.training.objective import BatchLabels, MaskObjective, batch_pseudo_labels, compute_losses
from tagseg.training.pseudo_labels import UNLABELED, pseudo_labels
from tagseg.training.recipe import Recipe
from tagseg.training.transforms import TrainingImages, finish_batch
from tests.conftest import needs_gpu
from tests.training.small_run import small_data, small_recipe, student_recipe


def plain_loss(network: Network, images: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    """Compute the loss without any optimization."""
    settings = recipe.pseudo_labels
    out = network(network.normalize(images), full_size=False)
    small = F.interpolate(images, size=out.masks.shape[-2:], mode="bilinear", align_corners=True)
    refined = tagseg.pamr(small.cpu(), out.masks.detach().cpu(), iterations=settings.iterations).to(images.device)
    size = (images.shape[-2], images.shape[-1])
    pseudo = pseudo_labels(refined, tags, size=size, min_threshold=settings.min_threshold)
    enlarged = F.interpolate(out.logits, size=size, mode="bilinear", align_corners=True)
    pixels = F.cross_entropy(enlarged, pseudo, ignore_index=UNLABELED, reduction="none")
    losses = []
    for pixel, label, image_tags in zip(pixels, pseudo, tags, strict=True):
        counts = torch.bincount(label[label != UNLABELED], minlength=enlarged.shape[1])
        weights = (counts.sum() - counts) / (1 + counts.sum())
        complete = torch.equal(counts > 0, torch.cat([image_tags.new_ones(1), image_tags]).bool())
        weighted = pixel * torch.where(label == UNLABELED, 0, weights[label.clamp_min(0)])
        losses.append(weighted.mean() * complete)
    return classification_loss(out.scores, tags) + torch.stack(losses).mean()


def fast_loss(network: Network, images: Tensor, tags: Tensor, recipe: Recipe) -> Tensor:
    return compute_losses(
        network,
        images,
        BatchLabels.on_device(tags.cpu(), images.device),
        normalize=network.normalize,
        settings=recipe.pseudo_labels,
    ).total


def test_batch_without_tags_trains_on_its_labels_alone() -> None:
    recipe = small_recipe()
    network = build_network(recipe.model, ["dog"])
    images, tags = torch.rand(2, 3, 48, 48), torch.zeros(2, 1)
    losses = compute_losses(
        network,
        images,
        BatchLabels.on_device(tags, images.device),
        normalize=network.normalize,
        settings=recipe.pseudo_labels,
    )
    assert losses.segmentation == 0  # the background is all that they show, and its weight is the share of other pixels
    assert losses.total == losses.classification > 0


class SeededTraining:
    """Seeded training, one step at a time."""

    def __init__(self, device: str, *, half: bool) -> None:
        self.recipe = small_recipe("pseudo_labels.iterations=4", "pseudo_labels.min_threshold=0.05")
        self.data, _ = small_data()
        self.crops = TrainingImages(self.data, self.recipe.transforms, seed=0)
        self.device, self.half = device, half
        torch.manual_seed(0)
        self.network = build_network(self.recipe.model, self.data.classes).to(device).train()
        self.optimizer = torch.optim.SGD(self.network.parameter_groups(0.003), lr=0.003, momentum=0.9)

    def loss(self, objective: Callable[..., Tensor], step: int) -> Tensor:
        """Compute the loss of a step's batch and its gradient; the gate's seed depends on the step alone."""
        indices = [(8 * step + i) % len(self.data) for i in range(8)]
        batch, draws, tags, _ = (torch.stack(part) for part in zip(*(self.crops[0, i] for i in indices), strict=True))
        torch.manual_seed(step)
        images = finish_batch(batch, draws, self.recipe.transforms, torch.device(self.device))
        with torch.autocast(self.device, torch.bfloat16, enabled=self.half):
            loss = objective(self.network, images, tags.to(self.device), self.recipe)
        loss.backward()
        return loss.detach().cpu()

    def gradient(self) -> Tensor:
        return torch.cat([p.grad.flatten() for p in self.network.parameters() if p.grad is not None])

    def optimizer_step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def loss_curve(objective: Callable[..., Tensor], device: str, steps: int, *, half: bool = False) -> Tensor:
    """Train for seeded steps and return the losses."""
    training, losses = SeededTraining(device, half=half), []
    for step in range(steps):
        losses.append(training.loss(objective, step))
        training.optimizer_step()
    return torch.stack(losses)


@pytest.mark.gpu
@needs_gpu
def test_loss_and_gradient_equal_the_plain_ones_in_half_precision() -> None:
    """Both losses of a step use the same weights, so that differences do not accumulate."""
    training = SeededTraining("cuda", half=True)
    for step in range(50):
        expected = training.loss(plain_loss, step)
        plain_gradient = training.gradient()
        training.optimizer.zero_grad()
        loss = training.loss(fast_loss, step)
        assert abs(loss - expected) < 1e-3 * expected
        assert (training.gradient() - plain_gradient).norm() < 0.01 * plain_gradient.norm()
        training.optimizer_step()


def test_losses_of_fifty_steps_equal_the_plain_ones() -> None:
    expected, losses = loss_curve(plain_loss, "cpu", 50), loss_curve(fast_loss, "cpu", 50)
    assert (expected[:5] - losses[:5]).abs().max() < 1e-4
    assert (expected - losses).abs().max() < 1e-3 * expected.mean()


@pytest.mark.gpu
@needs_gpu
def test_losses_in_half_precision_differ_by_less_than_its_rounding() -> None:
    """On a GPU, two runs of the same objective differ as well, since sums have no fixed order."""
    expected, losses, exact = (
        loss_curve(objective, "cuda", 50, half=half)
        for objective, half in ((plain_loss, True), (fast_loss, True), (plain_loss, False))
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


def test_loss_ignores_pixels_without_a_label() -> None:
    network = build_network(student_recipe().model, ["a", "b"]).eval()
    images, masks = torch.rand(2, 3, 48, 48), torch.randint(3, (2, 48, 48), dtype=torch.uint8)
    masks[1] = IGNORE_LABEL

    def losses(images: torch.Tensor, masks: torch.Tensor) -> float:
        return MaskObjective(2).losses(network, images, masks, normalize=network.normalize).total.item()

    assert losses(images, masks) == pytest.approx(losses(images[:1], masks[:1]), rel=1e-4)
    assert losses(images[1:], masks[1:]) == 0
    assert MaskObjective(2).labels(masks).tolist() == [[1, 1], [0, 0]]
