from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from tagseg import dense_crf
from tagseg.benchmarks.crf import authors_crf, scene
from tests.conftest import Reference

GOLDEN = Path(__file__).parents[1] / "golden" / "crf.npz"


def random_case(seed: int, height: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """A noisy image of four coloured quarters, and probabilities that know nothing of it."""
    random = np.random.RandomState(seed)
    quarters = random.randint(0, 256, (3, 2, 2)).repeat(-(-height // 2), 1).repeat(-(-width // 2), 2)
    image = (quarters[:, :height, :width] + random.randint(-12, 13, (3, height, width))).clip(0, 255)
    probs = random.uniform(0, 1, (classes, height, width)) ** 3
    return torch.from_numpy(image.astype(np.uint8)), torch.from_numpy((probs / probs.sum(0)).astype(np.float32))


def case_with_silent_classes() -> tuple[Tensor, Tensor]:
    """Three of eight classes occur, and one quarter has no class at all, so that the silent ones matter there."""
    image, probs = random_case(3, 20, 27, 8)
    probs[[0, 2, 3, 5, 7]] = 0
    probs[:, :10, :14] = 0
    return image, probs


cases = st.builds(random_case, st.integers(0, 10_000), st.integers(1, 16), st.integers(1, 16), st.integers(1, 5))
few = settings(max_examples=15, deadline=None)


def largest_difference(q: Tensor, expected: Tensor) -> float:
    assert q.shape == expected.shape
    return float((q - expected).abs().max())


@pytest.mark.parametrize("iterations", [1, 5, 10])
def test_reference(reference: Reference, iterations: int) -> None:
    golden = reference("crf.npz")
    q = dense_crf(golden["image"].permute(2, 0, 1), golden["probs"], iterations=iterations)
    assert largest_difference(q, golden[f"q_it{iterations}"]) < 1e-5


@pytest.mark.parametrize(("active", "seed"), [(21, 0), (3, 1), (2, 2)])
def test_same_labels_as_the_authors(active: int, seed: int) -> None:
    pytest.importorskip("pydensecrf", reason="pydensecrf2 is an extra of its own")
    image, probs = scene(120, 160, active, seed=seed)
    q, expected = dense_crf(image, probs), authors_crf(image, probs)
    assert (q.argmax(0) == expected.argmax(0)).float().mean() >= 0.999
    assert largest_difference(q, expected) < 1e-3


@pytest.mark.parametrize("iterations", [1, 10])
def test_stored_results(iterations: int) -> None:
    """They are this function's own, from when it agreed with the C++ code on the same input."""
    with np.load(GOLDEN) as golden:
        expected = torch.from_numpy(golden[f"q_it{iterations}"])
    image, probs = random_case(0, 24, 32, 4)
    assert largest_difference(dense_crf(image, probs, iterations=iterations), expected) < 1e-4


def exact_crf(image: Tensor, probs: Tensor, iterations: int, kernels: list[tuple[float, float, float]]) -> Tensor:
    """The CRF with every pair of pixels computed; kernels are (reach in place, reach in colour, weight)."""
    row, column = torch.meshgrid(*(torch.arange(size) for size in image.shape[1:]), indexing="ij")
    messages = torch.zeros(row.numel(), row.numel())
    for sxy, srgb, weight in kernels:
        features = torch.cat([torch.stack([column, row]) / sxy, image / srgb]).flatten(1).T
        kernel = torch.exp(-0.5 * torch.cdist(features, features) ** 2)
        norm = kernel.sum(1).rsqrt()
        messages += weight * norm[:, None] * kernel * norm
    scores = probs.clamp(1e-5, 1).log().flatten(1)
    q = scores.softmax(0)
    for _ in range(iterations):
        q = (scores + q @ messages).softmax(0)
    return q.view_as(probs)


def test_comes_near_the_sum_over_all_pairs() -> None:
    image, probs = random_case(1, 24, 24, 3)
    q = dense_crf(
        image, probs, iterations=5, gaussian_compat=1, bilateral_sxy=20, bilateral_srgb=40, bilateral_compat=2
    )
    exact = exact_crf(image, probs, 5, [(3, float("inf"), 1), (20, 40, 2)])
    # The lattice is an approximation: its error has to be small beside what the CRF does.
    assert (q - exact).abs().mean() < 0.1 * (exact - probs).abs().mean()


@pytest.mark.parametrize(("iterations", "at_most"), [(3, 0.1), (10, 1e-4)])
def test_classes_that_occur_nowhere_get_what_computing_them_gives(iterations: int, at_most: float) -> None:
    image, probs = case_with_silent_classes()
    # A hair above the clip in one pixel makes a class active, so each of them is computed by itself.
    all_active = probs.clone()
    all_active[:, 1, 1] = probs[:, 1, 1].clamp_min(1.0001e-5)
    q = dense_crf(image, probs, iterations=iterations)
    assert largest_difference(q, dense_crf(image, all_active, iterations=iterations)) < 1e-5
    assert at_most / 10 < q[0].max() < at_most  # the class matters for the difference at first, and fades in the end


def test_classes_that_all_occur_nowhere_share_every_pixel() -> None:
    image, probs = random_case(4, 6, 7, 4)
    torch.testing.assert_close(dense_crf(image, torch.zeros_like(probs)), torch.full_like(probs, 0.25))


@few
@given(cases)
def test_probabilities_sum_to_one(case: tuple[Tensor, Tensor]) -> None:
    q = dense_crf(*case)
    assert q.dtype == torch.float32
    torch.testing.assert_close(q.sum(0), torch.ones_like(q[0]))


@few
@given(cases)
def test_no_iteration_gives_the_clipped_probabilities(case: tuple[Tensor, Tensor]) -> None:
    image, probs = case
    clipped = probs.clamp(0.1, 1)
    torch.testing.assert_close(dense_crf(image, probs, iterations=0, clip=0.1), clipped / clipped.sum(0))


def test_order_of_the_classes_does_not_matter() -> None:
    image, probs = case_with_silent_classes()
    order = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    assert largest_difference(dense_crf(image, probs[order]), dense_crf(image, probs)[order]) < 1e-5


def test_many_classes_are_computed_like_few() -> None:
    """Softmax has one way for long rows and one for short ones."""
    image, probs = random_case(5, 12, 15, 3)
    padding = torch.full((17, 12, 15), 1e-30)
    padding[:, 0, 0] = 1.1e-30
    wide = dense_crf(image, torch.cat([probs, padding]), clip=1e-30)
    assert largest_difference(wide[:3], dense_crf(image, probs, clip=1e-30)) < 1e-5


def test_floating_point_image_is_the_same_image() -> None:
    image, probs = random_case(6, 12, 15, 3)
    assert torch.equal(dense_crf(image / 255, probs), dense_crf(image, probs))


def test_noise_is_removed_along_the_edges_of_the_image() -> None:
    image = torch.zeros(3, 20, 30, dtype=torch.uint8)
    image[:, :, 13:] = 200
    ground_truth = (image[0] > 0).long()
    noisy = torch.where(torch.rand(20, 30) < 0.25, 1 - ground_truth, ground_truth)
    probs = torch.nn.functional.one_hot(noisy, 2).permute(2, 0, 1) * 0.4 + 0.3
    assert torch.equal(dense_crf(image, probs).argmax(0), ground_truth)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu() -> None:
    image, probs = case_with_silent_classes()
    q = dense_crf(image.cuda(), probs.cuda())
    assert q.is_cuda
    assert largest_difference(q.cpu(), dense_crf(image, probs)) < 1e-4


IMAGE, PROBS = random_case(7, 4, 5, 2)
NAN = PROBS.clone()
NAN[0, 0, 0] = float("nan")


@pytest.mark.parametrize(
    ("image", "probs", "options", "message"),
    [
        (IMAGE[0], PROBS, {}, r"image must be \[3, H, W\], got a tensor of shape \[4, 5\]"),
        (IMAGE, PROBS[None], {}, r"probs must be \[C, H, W\], got a tensor of shape \[1, 2, 4, 5\]"),
        (IMAGE[:1], PROBS, {}, r"image must have 3 channels \(RGB\), got 1"),
        (IMAGE[:, :3], PROBS, {}, "probs is 4x5 but image is 3x5; both must have the same height and width"),
        (IMAGE, PROBS[:0], {}, r"probs must have at least one class and one pixel, got shape \[0, 4, 5\]"),
        (IMAGE.int(), PROBS, {}, r"image must be uint8, or floating point in \[0, 1\], got torch.int32"),
        (IMAGE.float() + 1, PROBS, {}, "value of a floating-point image must be from 0 to 1, got"),
        (IMAGE, NAN, {}, "probs has 1 NaN or infinite values of 40; every value must be finite"),
        (IMAGE, PROBS - 2, {}, "the least value of probs must be at least 0, got -"),
        (IMAGE, PROBS, {"iterations": -1}, "iterations must be at least 0, got -1"),
        (IMAGE, PROBS, {"clip": 0.0}, "clip must be from 1.17549e-38 to 1, got 0.0"),
        (IMAGE, PROBS, {"bilateral_srgb": 0.0}, "bilateral_srgb must be at least 0.001, got 0.0"),
        (IMAGE, PROBS, {"gaussian_compat": -3.0}, r"gaussian_compat must be from 0 to 1e\+06, got -3.0"),
    ],
)
def test_bad_input_is_named(image: Tensor, probs: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dense_crf(image, probs, **options)


def test_too_fine_a_filter_is_named() -> None:
    random = torch.randint(0, 256, (3, 40, 40), dtype=torch.uint8)
    with pytest.raises(ValueError, match="lattice cells, allowed are 1e17; widen the filter"):
        dense_crf(random, torch.rand(2, 40, 40), bilateral_sxy=0.01, bilateral_srgb=0.01)
