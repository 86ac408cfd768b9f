import pytest
import torch
from torch import Tensor

from tagseg.training.enlarged import enlarged_cross_entropy
from tests.conftest import KERNEL_DEVICE

pytest.importorskip("triton")


def case(height: int, width: int, big_height: int, big_width: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    logits = (4 * torch.randn(2, classes, height, width)).to(KERNEL_DEVICE).requires_grad_()
    labels = torch.randint(-1, classes, (2, big_height, big_width))
    return logits, labels.to(KERNEL_DEVICE), torch.rand(2, classes).to(KERNEL_DEVICE)


def fused(logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
    from tagseg.training._enlarged_triton import FusedCrossEntropy

    return FusedCrossEntropy.apply(logits, labels, class_weights)  # type: ignore[no-any-return]


def plain(logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
    return enlarged_cross_entropy(logits.cpu(), labels.cpu(), class_weights.cpu()).to(KERNEL_DEVICE)


# A few shapes and not random ones: Triton's interpreter takes a second for each.
@pytest.mark.parametrize(
    ("h", "w", "big_h", "big_w", "k"),
    [(2, 2, 2, 2, 1), (2, 9, 24, 5, 3), (7, 5, 23, 19, 9), (9, 9, 4, 2, 2), (3, 8, 3, 24, 5)],
)
def test_the_fused_kernels_give_the_plain_losses_and_gradients(h: int, w: int, big_h: int, big_w: int, k: int) -> None:
    torch.manual_seed(0)
    logits, labels, weights = case(h, w, big_h, big_w, k)
    upstream = torch.randn(2).to(KERNEL_DEVICE)
    expected = plain(logits, labels, weights)
    found = fused(logits, labels, weights)
    assert torch.allclose(found, expected, atol=1e-4)
    gradients = [torch.autograd.grad(losses, logits, upstream)[0] for losses in (expected, found)]
    assert torch.allclose(gradients[1], gradients[0], atol=1e-4)


def test_pixels_without_a_label_teach_nothing() -> None:
    logits, labels, weights = case(5, 6, 17, 21, 4)
    labels[:] = -1
    for loss in (plain, fused):
        total = loss(logits, labels, weights).sum()
        assert total == 0
        assert not torch.autograd.grad(total, logits)[0].any()
