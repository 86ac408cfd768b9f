from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

import tagseg
from tests.compare import assert_close
from tests.conftest import Reference


def test_equals_the_reference(reference: Reference) -> None:
    golden = reference("pseudo.npz")
    pseudo = tagseg.pseudo_labels(golden["masks"], golden["labels"])
    losses = tagseg.self_supervised_loss(golden["logits"], pseudo, golden["labels"], reduction="none")
    assert_close(losses, golden["loss_per_image"])
    mean = tagseg.self_supervised_loss(golden["logits"], pseudo, golden["labels"])
    assert mean.item() == pytest.approx(golden["loss_per_image"].mean().item(), rel=1e-4)


def test_classification_loss_is_equation_6() -> None:
    scores, labels = torch.randn(3, 5), torch.randint(0, 2, (3, 5)).float()
    expected = -(labels * scores.sigmoid().log() + (1 - labels) * (1 - scores.sigmoid()).log()).mean()
    assert tagseg.classification_loss(scores, labels).item() == pytest.approx(expected.item(), rel=1e-5)


def test_pixel_weights_are_those_of_the_supplement() -> None:
    """The loss of a pixel of class c is multiplied by q_c = (M - M_c) / (1 + M)."""
    logits = torch.randn(1, 3, 4, 5)
    pseudo = torch.randint(-1, 3, (1, 4, 5))
    pseudo[0, 0, :3] = torch.tensor([0, 1, 2])
    total = (pseudo >= 0).sum()
    expected = torch.zeros(())
    for y in range(4):
        for x in range(5):
            label = int(pseudo[0, y, x])
            if label >= 0:
                weight = (total - (pseudo == label).sum()) / (1 + total)
                expected -= weight * logits[0, :, y, x].log_softmax(0)[label] / 20
    assert tagseg.self_supervised_loss(logits, pseudo, torch.ones(1, 2)).item() == pytest.approx(
        expected.item(), rel=1e-5
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_loss_is_zero_if_and_only_if_a_class_is_missing(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 4, 5, 6, generator=generator)
    pseudo = torch.randint(-1, 4, (4, 2, 2), generator=generator)
    labels = torch.randint(0, 2, (4, 3), generator=generator).float()
    losses = tagseg.self_supervised_loss(logits, pseudo, labels, reduction="none")
    for loss, image, tags in zip(losses, pseudo, labels, strict=True):
        expected_classes = {0, *(1 + int(index) for index in tags.nonzero())}
        labeled_classes = {int(value) for value in image.unique()} - {tagseg.UNLABELED}
        weight_is_zero = len(labeled_classes) == 1  # one class alone has weight 0
        assert (loss > 0) == (expected_classes == labeled_classes and not weight_is_zero)


def test_paper_weighting_counts_labeled_pixels() -> None:
    logits = torch.randn(3, 2, 4, 4)
    pseudo = torch.full((3, 4, 4), tagseg.UNLABELED)
    pseudo[0, :1], pseudo[0, 1] = 0, 1  # 8 labeled pixels
    pseudo[1, 0, 0], pseudo[1, 0, 1] = 0, 1  # 2 labeled pixels
    pseudo[2] = 0  # ignored: its class has no pixel
    labels = torch.ones(3, 1)
    losses = tagseg.self_supervised_loss(logits, pseudo, labels, reduction="none")
    paper = tagseg.self_supervised_loss(logits, pseudo, labels, weighting="paper")
    assert paper.item() == pytest.approx(((8 * losses[0] + 2 * losses[1]) / 10).item(), rel=1e-5)
    per_image = tagseg.self_supervised_loss(logits, pseudo, labels, weighting="paper", reduction="none")
    assert per_image.sum().item() == pytest.approx(paper.item(), rel=1e-5)


def test_pixels_weighting_is_the_plain_cross_entropy() -> None:
    logits, pseudo = torch.randn(3, 3, 4, 5), torch.randint(-1, 3, (3, 8, 10))
    enlarged = F.interpolate(logits, size=(8, 10), mode="bilinear", align_corners=True)
    expected = F.cross_entropy(enlarged, pseudo, ignore_index=tagseg.UNLABELED)
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    loss = tagseg.self_supervised_loss(logits, pseudo, labels, weighting="pixels")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("weighting", ["reference", "paper", "pixels"])
def test_gradient_is_zero_if_all_pixels_are_ignored(weighting: str) -> None:
    logits = (1e4 * torch.randn(2, 3, 4, 4)).requires_grad_()
    pseudo = torch.full((2, 8, 8), tagseg.UNLABELED)
    loss = tagseg.self_supervised_loss(logits, pseudo, torch.ones(2, 2), weighting=weighting)
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_logits_are_resized_to_the_pseudo_labels() -> None:
    logits, pseudo = torch.randn(1, 2, 3, 3), torch.randint(0, 2, (1, 9, 9))
    large = F.interpolate(logits, (9, 9), mode="bilinear", align_corners=True)
    labels = torch.ones(1, 1)
    assert torch.equal(
        tagseg.self_supervised_loss(logits, pseudo, labels), tagseg.self_supervised_loss(large, pseudo, labels)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.rand(3, 4, 4)}, r"logits must be"),
        ({"pseudo": torch.zeros(2, 1, 4, 4).long()}, r"pseudo must be \[B, H, W\]"),
        ({"pseudo": torch.zeros(1, 4, 4).long()}, "one batch size, got 2 and 1"),
        ({"pseudo": torch.full((2, 4, 4), 3)}, r"whole numbers from -1 \(ignored\) to 2"),
        ({"pseudo": torch.full((2, 4, 4), 255)}, r"whole numbers from -1 \(ignored\) to 2"),
        ({"labels": torch.full((2, 2), 0.5)}, "labels must be 0 or 1, got 0.5"),
        ({"weighting": "papers"}, "unknown weighting 'papers'.*Did you mean 'paper'"),
        ({"reduction": "sum"}, "unknown reduction 'sum'; known: mean, none"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "logits": torch.rand(2, 3, 4, 4),
        "pseudo": torch.zeros(2, 4, 4).long(),
        "labels": torch.ones(2, 2),
        **change,
    }
    with pytest.raises(ValueError, match=message):
        tagseg.self_supervised_loss(**arguments)
