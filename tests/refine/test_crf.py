from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tagseg import dense_crf
from tagseg.benchmarks.crf import authors_crf, scene
from tagseg.benchmarks.timing import PeakBytes
from tests.conftest import Reference, needs_gpu

GOLDEN = Path(__file__).parents[1] / "golden" / "crf.npz"


def random_case(seed: int, height: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """A noisy image of four colored quarters, and random probabilities."""
    random = np.random.RandomState(seed)
    quarters = random.randint(0, 256, (3, 2, 2)).repeat(-(-height // 2), 1).repeat(-(-width // 2), 2)
    image = (quarters[:, :height, :width] + random.randint(-12, 13, (3, height, width))).clip(0, 255)
    probs = random.uniform(0, 1, (classes, height, width)) ** 3
    return torch.from_numpy(image.astype(np.uint8)), torch.from_numpy((probs / probs.sum(0)).astype(np.float32))


def case_with_unused_classes() -> tuple[Tensor, Tensor]:
    """Three of eight classes occur, and all are 0 in one quarter, so that the unused ones matter there."""
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
def test_equals_the_reference(reference: Reference, iterations: int) -> None:
    golden = reference("crf.npz")
    q = dense_crf(golden["image"].permute(2, 0, 1), golden["probs"], iterations=iterations)
    assert largest_difference(q, golden[f"q_it{iterations}"]) < 1e-5


@pytest.mark.parametrize(("active", "seed"), [(21, 0), (3, 1), (2, 2)])
def test_labels_equal_those_of_the_authors_code(active: int, seed: int) -> None:
    pytest.importorskip("pydensecrf", reason="pydensecrf2 is an optional extra")
    image, probs = scene(120, 160, active, seed=seed)
    q, expected = dense_crf(image, probs), authors_crf(image, probs)
    assert (q.argmax(0) == expected.argmax(0)).float().mean() >= 0.999
    assert largest_difference(q, expected) < 1e-3


@pytest.mark.parametrize("iterations", [1, 10])
def test_results_are_unchanged(iterations: int) -> None:
    """The stored values are from this function, when it agreed with the authors' C++ code on the same input."""
    with np.load(GOLDEN) as golden:
        expected = torch.from_numpy(golden[f"q_it{iterations}"])
    image, probs = random_case(0, 24, 32, 4)
    assert largest_difference(dense_crf(image, probs, iterations=iterations), expected) < 1e-4


def exact_crf(image: Tensor, probs: Tensor, iterations: int, kernels: list[tuple[float, float, float]]) -> Tensor:
    """Sum over all pairs of pixels; kernels are (deviation in position, deviation in color, weight)."""
    row, column = torch.meshgrid(*(torch.arange(size) for size in image.shape[1:]), indexing="ij")
    messages = torch.zeros(row.numel(), row.numel())
    for sxy, srgb, weight in kernels:
        features = torch.cat([torch.stack([column, row]) / sxy, image / srgb]).flatten(1).T
        kernel = torch.exp(-0.5 * torch.cdist(features, features) ** 2)
        norm = kernel.sum(1).rsqrt()
        messages += weight * norm[:, None] * kernel * norm
    unary = probs.clamp(1e-5, 1).log().flatten(1)
    q = unary.softmax(0)
    for _ in range(iterations):
        q = (unary + q @ messages).softmax(0)
    return q.view_as(probs)


def test_approximates_the_sum_over_all_pairs() -> None:
    image, probs = random_case(1, 24, 24, 3)
    q = dense_crf(
        image, probs, iterations=5, gaussian_compat=1, bilateral_sxy=20, bilateral_srgb=40, bilateral_compat=2
    )
    exact = exact_crf(image, probs, 5, [(3, float("inf"), 1), (20, 40, 2)])
    # The lattice is an approximation: its error must be small compared with the effect of the CRF.
    assert (q - exact).abs().mean() < 0.1 * (exact - probs).abs().mean()


@pytest.mark.parametrize(("iterations", "upper_bound"), [(3, 0.1), (10, 1e-4)])
def test_unused_classes_equal_those_computed_separately(iterations: int, upper_bound: float) -> None:
    image, probs = case_with_unused_classes()
    # A value just above the clip in one pixel makes each class a separate group.
    all_active = probs.clone()
    all_active[:, 1, 1] = probs[:, 1, 1].clamp_min(1.0001e-5)
    q = dense_crf(image, probs, iterations=iterations)
    assert largest_difference(q, dense_crf(image, all_active, iterations=iterations)) < 1e-5
    assert upper_bound / 10 < q[0].max() < upper_bound  # the class has an influence at first and fades later


def test_classes_are_equally_probable_if_all_are_unused() -> None:
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
def test_zero_iterations_give_the_clipped_probabilities(case: tuple[Tensor, Tensor]) -> None:
    image, probs = case
    clipped = probs.clamp(0.1, 1)
    torch.testing.assert_close(dense_crf(image, probs, iterations=0, clip=0.1), clipped / clipped.sum(0))


def test_order_of_the_classes_does_not_matter() -> None:
    image, probs = case_with_unused_classes()
    order = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    assert largest_difference(dense_crf(image, probs[order]), dense_crf(image, probs)[order]) < 1e-5


def test_many_classes_give_the_same_result_as_few() -> None:
    """The softmax has separate implementations for long and short rows."""
    image, probs = random_case(5, 12, 15, 3)
    padding = torch.full((17, 12, 15), 1e-30)
    padding[:, 0, 0] = 1.1e-30
    wide = dense_crf(image, torch.cat([probs, padding]), clip=1e-30)
    assert largest_difference(wide[:3], dense_crf(image, probs, clip=1e-30)) < 1e-5


def test_floating_point_image_equals_its_levels() -> None:
    image, probs = random_case(6, 12, 15, 3)
    assert torch.equal(dense_crf(image / 255, probs), dense_crf(image, probs))


def test_noise_is_removed_along_the_edges_of_the_image() -> None:
    image = torch.zeros(3, 20, 30, dtype=torch.uint8)
    image[:, :, 13:] = 200
    labels = (image[0] > 0).long()
    noisy = torch.where(torch.rand(20, 30) < 0.25, 1 - labels, labels)
    probs = torch.nn.functional.one_hot(noisy, 2).permute(2, 0, 1) * 0.4 + 0.3
    assert torch.equal(dense_crf(image, probs).argmax(0), labels)


@pytest.mark.gpu
@needs_gpu
def test_cuda_agrees_with_cpu() -> None:
    image, probs = case_with_unused_classes()
    q = dense_crf(image.cuda(), probs.cuda())
    assert q.is_cuda
    assert largest_difference(q.cpu(), dense_crf(image, probs)) < 1e-4


def batch_with_different_classes(height: int = 12, width: int = 15) -> tuple[Tensor, Tensor, Tensor]:
    """Images with 2, 5 and 3 of 5 classes; one of the first and two of the second image are 0 everywhere."""
    cases = [random_case(seed, height, width, 5) for seed in range(3)]
    images, probs = (torch.stack(part) for part in zip(*cases, strict=True))
    images[1] = 128
    probs[0, 1] = 0
    probs[1, 3:] = 0
    present = torch.tensor([[True, True, False, False, False], [True] * 5, [False, True, False, True, True]])
    return images, probs, present


# Small images are computed in one batch, large ones one after another.
@pytest.mark.parametrize("size", [(12, 15), (190, 350)])
def test_batch_equals_single_images(size: tuple[int, int]) -> None:
    images, probs, _ = batch_with_different_classes(*size)
    expected = torch.stack([dense_crf(*image, iterations=3) for image in zip(images, probs, strict=True)])
    assert largest_difference(dense_crf(images, probs, iterations=3), expected) < 1e-6


def test_absent_classes_are_ignored() -> None:
    images, probs, present = batch_with_different_classes()
    refined = dense_crf(images, probs, present=present)
    for image, planes, classes, q in zip(images, probs, present, refined, strict=True):
        assert largest_difference(q[classes], dense_crf(image, planes[classes])) < 1e-6
        assert q[~classes].count_nonzero() == 0
        assert torch.equal(dense_crf(image, planes, present=classes)[~classes], q[~classes])


def test_order_of_the_images_does_not_matter() -> None:
    images, probs, present = batch_with_different_classes()
    order = torch.tensor([2, 0, 1])
    permuted = dense_crf(images[order], probs[order], present=present[order])
    assert largest_difference(permuted, dense_crf(images, probs, present=present)[order]) < 1e-6


@pytest.mark.gpu
@needs_gpu
def test_cuda_batch_agrees_with_cpu_and_is_deterministic() -> None:
    images, probs, present = batch_with_different_classes(40, 50)
    on_gpu = [part.cuda() for part in (images, probs, present)]
    refined = dense_crf(*on_gpu[:2], present=on_gpu[2])
    assert largest_difference(refined.cpu(), dense_crf(images, probs, present=present)) < 1e-4
    assert torch.equal(refined, dense_crf(*on_gpu[:2], present=on_gpu[2]))


def test_lattice_cached_in_inference_mode_is_usable_outside() -> None:
    images, probs, present = batch_with_different_classes(5, 31)
    with torch.inference_mode():
        expected = dense_crf(images, probs, present=present)
    assert torch.equal(dense_crf(images, probs, present=present), expected)


class ProductElements(TorchDispatchMode):
    """Count the elements that products with sparse matrices compute."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.__name__.startswith("_embedding_bag"):
            self.count += result[0].numel()
        return result


def product_elements(*, active: int, classes: int) -> int:
    image, probs = random_case(0, 30, 40, active)
    padded = torch.cat([probs, torch.zeros(classes - active, 30, 40)])
    dense_crf(image, padded, iterations=0)  # caches the Gaussian lattice of this size
    with ProductElements() as elements:
        dense_crf(image, padded)
    return int(elements.count)


def test_only_classes_that_occur_are_computed() -> None:
    """Stated in docs/performance.md."""
    assert product_elements(active=3, classes=21) == product_elements(active=3, classes=81)
    # Four groups of 21, and the normalization that both have in common.
    assert product_elements(active=3, classes=21) < product_elements(active=21, classes=21) * 4 / 20


@pytest.mark.parametrize(("classes", "iterations"), [(21, 2), (21, 20), (81, 2)])
def test_memory_is_independent_of_iterations_and_unused_classes(classes: int, iterations: int) -> None:
    image, probs = random_case(1, 60, 80, 3)
    padded = torch.cat([probs, torch.zeros(classes - 3, 60, 80)])
    dense_crf(image, padded, iterations=0)  # caches the Gaussian lattice of this size
    memory = PeakBytes()
    with memory:
        q = dense_crf(image, padded, iterations=iterations)
    assert memory.peak - q.nbytes < 400 * 60 * 80


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("classes", [3, 17])
def test_result_is_independent_of_the_number_of_threads(classes: int, set_threads: Callable[[int], None]) -> None:
    image, probs = random_case(8, 130, 170, classes)
    expected = dense_crf(image, probs, iterations=3)
    for threads in (2, 5):
        set_threads(threads)
        assert torch.equal(dense_crf(image, probs, iterations=3), expected)


def test_concurrent_calls_do_not_influence_each_other(set_threads: Callable[[int], None]) -> None:
    cases = [random_case(seed, 60, 80, 4) for seed in range(6)]
    expected = [dense_crf(*case, iterations=3) for case in cases]
    set_threads(2)
    with ThreadPoolExecutor(3) as executor:
        results = list(executor.map(lambda case: dense_crf(*case, iterations=3), cases))
    assert all(torch.equal(*pair) for pair in zip(results, expected, strict=True))


def test_numpy_arrays_give_a_numpy_array() -> None:
    image, probs = random_case(9, 12, 15, 3)
    present = torch.tensor([True, False, True])
    q = dense_crf(image.numpy(), probs.numpy(), present=present.numpy())
    assert isinstance(q, np.ndarray)
    assert np.array_equal(q, dense_crf(image, probs, present=present).numpy())


def test_tensors_and_arrays_cannot_be_mixed() -> None:
    image, probs = random_case(9, 12, 15, 3)
    with pytest.raises(ValueError, match="cannot be mixed: image is a tensor, probs is a numpy array"):
        dense_crf(image, probs.numpy())  # type: ignore[type-var]


def test_gradients_are_not_tracked() -> None:
    image, probs = random_case(9, 12, 15, 3)
    assert not dense_crf(image, probs.requires_grad_()).requires_grad


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
        (IMAGE, PROBS - 2, {}, "the smallest value of probs must be at least 0, got -"),
        (IMAGE, PROBS, {"iterations": -1}, "iterations must be at least 0, got -1"),
        (IMAGE, PROBS, {"clip": 0.0}, "clip must be from 1.17549e-38 to 1, got 0.0"),
        (IMAGE, PROBS, {"bilateral_srgb": 0.0}, "bilateral_srgb must be at least 0.001, got 0.0"),
        (IMAGE, PROBS, {"gaussian_compat": -3.0}, r"gaussian_compat must be from 0 to 1e\+06, got -3.0"),
    ],
)
def test_wrong_arguments_are_named(image: Tensor, probs: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dense_crf(image, probs, **options)


def test_too_small_deviations_are_refused() -> None:
    random = torch.randint(0, 256, (3, 40, 40), dtype=torch.uint8)
    with pytest.raises(ValueError, match="lattice cells, allowed are 1e17; widen the filter"):
        dense_crf(random, torch.rand(2, 40, 40), bilateral_sxy=0.01, bilateral_srgb=0.01)


IMAGES, BATCH_PROBS, PRESENT = batch_with_different_classes(4, 5)


@pytest.mark.parametrize(
    ("images", "probs", "present", "message"),
    [
        (IMAGES, BATCH_PROBS[0], None, r"probs must be \[B, C, H, W\], got a tensor of shape \[5, 4, 5\]"),
        (IMAGES, BATCH_PROBS[:2], None, "image and probs must have the same batch size, got 3 and 2"),
        (IMAGES, BATCH_PROBS, PRESENT.long(), r"present must be bool \[3, 5\], .*, got torch.int64 \[3, 5\]"),
        (IMAGES[0], BATCH_PROBS[0], PRESENT, r"present must be bool \[5\], .*, got torch.bool \[3, 5\]"),
        (IMAGES, BATCH_PROBS, PRESENT & False, "present must have at least one class in each image"),
    ],
)
def test_wrong_batches_are_named(images: Tensor, probs: Tensor, present: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dense_crf(images, probs, present=present)
