import pytest
import torch
from torch import Tensor

from tagseg import dense_crf
from tests.refine.test_crf import largest_difference, random_case


def batch_with_different_classes(height: int = 12, width: int = 15) -> tuple[Tensor, Tensor, Tensor]:
    """Images with 2, 5 and 3 of 5 classes; one of the first image's and two of the second's occur nowhere."""
    cases = [random_case(seed, height, width, 5) for seed in range(3)]
    images, probs = (torch.stack(part) for part in zip(*cases, strict=True))
    images[1] = 128
    probs[0, 1] = 0
    probs[1, 3:] = 0
    present = torch.tensor([[True, True, False, False, False], [True] * 5, [False, True, False, True, True]])
    return images, probs, present


# Small images are computed together, large ones one after another.
@pytest.mark.parametrize("size", [(12, 15), (190, 350)])
def test_each_image_gets_what_it_gets_alone(size: tuple[int, int]) -> None:
    images, probs, _ = batch_with_different_classes(*size)
    alone = torch.stack([dense_crf(*image, iterations=3) for image in zip(images, probs, strict=True)])
    assert largest_difference(dense_crf(images, probs, iterations=3), alone) < 1e-6


def test_absent_classes_take_no_part() -> None:
    images, probs, present = batch_with_different_classes()
    refined = dense_crf(images, probs, present=present)
    for image, planes, classes, q in zip(images, probs, present, refined, strict=True):
        assert largest_difference(q[classes], dense_crf(image, planes[classes])) < 1e-6
        assert q[~classes].count_nonzero() == 0
        assert torch.equal(dense_crf(image, planes, present=classes)[~classes], q[~classes])


def test_a_images_place_in_the_batch_does_not_matter() -> None:
    images, probs, present = batch_with_different_classes()
    order = torch.tensor([2, 0, 1])
    turned = dense_crf(images[order], probs[order], present=present[order])
    assert largest_difference(turned, dense_crf(images, probs, present=present)[order]) < 1e-6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu_and_with_itself() -> None:
    images, probs, present = batch_with_different_classes(40, 50)
    on_gpu = [part.cuda() for part in (images, probs, present)]
    refined = dense_crf(*on_gpu[:2], present=on_gpu[2])
    assert largest_difference(refined.cpu(), dense_crf(images, probs, present=present)) < 1e-4
    assert torch.equal(refined, dense_crf(*on_gpu[:2], present=on_gpu[2]))


def test_what_inference_mode_left_behind_is_of_use_outside() -> None:
    """The Gaussian lattice of a size is kept."""
    images, probs, present = batch_with_different_classes(5, 31)
    with torch.inference_mode():
        expected = dense_crf(images, probs, present=present)
    assert torch.equal(dense_crf(images, probs, present=present), expected)


IMAGES, PROBS, PRESENT = batch_with_different_classes(4, 5)


@pytest.mark.parametrize(
    ("images", "probs", "present", "message"),
    [
        (IMAGES, PROBS[0], None, r"probs must be \[B, C, H, W\], got a tensor of shape \[5, 4, 5\]"),
        (IMAGES, PROBS[:2], None, "image and probs must be of one batch size, got 3 and 2"),
        (IMAGES, PROBS, PRESENT.long(), r"present must be bool \[3, 5\], .*, got torch.int64 \[3, 5\]"),
        (IMAGES[0], PROBS[0], PRESENT, r"present must be bool \[5\], .*, got torch.bool \[3, 5\]"),
        (IMAGES, PROBS, PRESENT & False, "present must have at least one class in each image"),
    ],
)
def test_bad_input_is_named(images: Tensor, probs: Tensor, present: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dense_crf(images, probs, present=present)
