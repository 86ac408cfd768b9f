from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import Tensor

import tagseg
from tagseg.benchmarks.timing import PeakBytes
from tests.compare import assert_close
from tests.conftest import Reference


def random_case(seed: int, height: int, width: int, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(2, 3, height, width, generator=generator, dtype=torch.float64)
    masks = torch.randn(2, classes, height, width, generator=generator, dtype=torch.float64).softmax(1)
    return image, masks


cases = st.builds(random_case, st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 20))
kernels = st.sampled_from(["reference", "paper"])
few = settings(max_examples=15, deadline=None)


@pytest.mark.parametrize(
    ("name", "dilations", "iterations"),
    [
        ("out_d124_8_12_24_it10", (1, 2, 4, 8, 12, 24), 10),
        ("out_d1_it1", (1,), 1),
        ("out_d1248_it5", (1, 2, 4, 8), 5),
    ],
)
def test_equals_the_reference(reference: Reference, name: str, dilations: tuple[int, ...], iterations: int) -> None:
    golden = reference("pamr.npz")
    refined = tagseg.pamr(golden["image"], golden["masks"], dilations=dilations, iterations=iterations)
    assert_close(refined, golden[name])


def test_equals_the_reference_at_the_same_size(reference: Reference) -> None:
    golden = reference("pamr.npz")
    masks = F.interpolate(golden["masks"], size=golden["image"].shape[-2:])
    assert_close(tagseg.pamr(golden["image"], masks), golden["out_same_size_it10"])


@few
@given(cases, kernels)
def test_preserves_the_sum_at_each_pixel_and_the_range_of_each_mask(case: tuple[Tensor, Tensor], kernel: str) -> None:
    image, masks = case
    refined = tagseg.pamr(image, masks, kernel=kernel, iterations=3)
    assert torch.allclose(refined.sum(1), masks.sum(1))
    assert (refined <= masks.amax((2, 3), keepdim=True) + 1e-9).all()
    assert (refined >= masks.amin((2, 3), keepdim=True) - 1e-9).all()


@few
@given(cases, kernels, st.floats(-5, 5))
def test_preserves_a_constant_mask(case: tuple[Tensor, Tensor], kernel: str, value: float) -> None:
    image, masks = case
    constant = torch.full_like(masks, value)
    assert torch.allclose(tagseg.pamr(image, constant, kernel=kernel, iterations=3), constant)


@few
@given(cases, kernels, st.sampled_from([(-1,), (-2,), (-2, -1)]))
def test_commutes_with_flips(case: tuple[Tensor, Tensor], kernel: str, sides: tuple[int, ...]) -> None:
    image, masks = case
    refined = tagseg.pamr(image, masks, kernel=kernel, iterations=3)
    flipped = tagseg.pamr(image.flip(sides), masks.flip(sides), kernel=kernel, iterations=3)
    assert torch.allclose(flipped.flip(sides), refined)


def test_masks_do_not_influence_each_other() -> None:
    image, masks = random_case(0, 12, 17)
    assert torch.equal(tagseg.pamr(image, masks)[:, 1:3], tagseg.pamr(image, masks[:, 1:3]))


def test_mask_moves_to_the_edge_of_the_image() -> None:
    """The mask starts three pixels from the edge."""
    image = torch.zeros(1, 3, 24, 24)
    image[..., 12:] = 1.0
    mask = torch.zeros(1, 1, 24, 24)
    mask[..., 9:] = 1.0
    refined = tagseg.pamr(image, mask, dilations=(1, 2, 4, 8), iterations=20)
    assert refined[..., 12:].mean() > 0.95
    assert refined[..., :12].mean() < mask[..., :12].mean() + 1e-3
    assert (refined[..., 12:] > 0.5).all()


def test_neighbors_have_equal_weights_in_a_flat_image() -> None:
    masks = torch.zeros(1, 1, 9, 9)
    masks[..., 4, 4] = 1.0
    for kernel in ("reference", "paper"):
        refined = tagseg.pamr(torch.full((1, 3, 9, 9), 0.3), masks, dilations=(1,), iterations=1, kernel=kernel)
        assert refined[0, 0, 3, 3] == pytest.approx(1 / 8)
        assert refined[0, 0, 4, 4] == 0


def test_half_precision_is_finite_in_a_flat_image() -> None:
    masks = torch.rand(1, 2, 8, 8).half()
    assert tagseg.pamr(torch.full((1, 3, 8, 8), 0.5).half(), masks, iterations=2).isfinite().all()


def test_kernels_differ() -> None:
    image, masks = random_case(1, 10, 10)
    assert not torch.allclose(tagseg.pamr(image, masks), tagseg.pamr(image, masks, kernel="paper"), atol=1e-3)


def test_zero_iterations_only_upsample() -> None:
    image, masks = random_case(0, 16, 24)
    small = masks[..., ::4, ::4]
    assert torch.equal(
        tagseg.pamr(image, small, iterations=0), F.interpolate(small, (16, 24), mode="bilinear", align_corners=True)
    )


def test_differentiable_in_masks_and_image() -> None:
    image, masks = random_case(2, 5, 6, classes=2)
    image, masks = image[:1].requires_grad_(), masks[:1].requires_grad_()
    assert torch.autograd.gradcheck(lambda i, m: tagseg.pamr(i, m, dilations=(1, 2), iterations=2), (image, masks))


def test_absent_masks_are_only_upsampled() -> None:
    image, masks = random_case(3, 12, 16)
    small = masks[..., ::2, ::2]
    present = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0]])
    refined = tagseg.pamr(image, small, present=present)
    is_present = present.bool()
    assert torch.equal(refined[is_present], tagseg.pamr(image, small)[is_present])
    assert torch.equal(refined[~is_present], tagseg.pamr(image, small, iterations=0)[~is_present])


def test_input_is_not_modified() -> None:
    image, masks = (part.float() for part in random_case(4, 9, 7))
    before = image.clone(), masks.clone()
    tagseg.pamr(image, masks)
    assert torch.equal(image, before[0])
    assert torch.equal(masks, before[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": torch.rand(1, 3, 8, 8)}, "the same batch size, got 1 and 2"),
        ({"image": torch.rand(3, 8, 8)}, r"image must be \[B, 3, H, W\]"),
        ({"masks": torch.rand(2, 8, 8)}, r"masks must be \[B, C, h, w\]"),
        ({"masks": torch.rand(2, 4, 30, 8)}, "do not match: the image is 8 x 8 and the masks are 30 x 8"),
        ({"masks": torch.full((2, 4, 8, 8), torch.nan)}, "masks has 512 NaN"),
        ({"image": torch.full((2, 3, 8, 8), torch.inf)}, "image has 384 NaN or infinite"),
        ({"image": torch.zeros(2, 3, 8, 8, dtype=torch.uint8)}, "divide by 255"),
        ({"kernel": "papre"}, "unknown PAMR kernel 'papre'; known: paper, reference. Did you mean 'paper'?"),
        ({"dilations": ()}, "dilations must be one or more"),
        ({"dilations": (0,)}, "dilations must be one or more"),
        ({"iterations": -1}, "iterations must be 0 or more, got -1"),
        ({"present": torch.ones(2, 3)}, r"present must be \[B, C\] = \[2, 4\], got"),
        ({"present": torch.full((2, 4), 0.5)}, "present must be 0 or 1"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, object], message: str) -> None:
    arguments: dict[str, Any] = {"image": torch.rand(2, 3, 8, 8), "masks": torch.rand(2, 4, 8, 8), **change}
    with pytest.raises(ValueError, match=message):
        tagseg.pamr(**arguments)


def test_plain_implementation_never_holds_all_neighbors() -> None:
    """Double precision uses the implementation that gradients use."""
    image, masks = torch.rand(1, 3, 250, 300).double(), torch.rand(1, 21, 250, 300).double()
    with PeakBytes() as memory:
        tagseg.pamr(image, masks, iterations=1)
    assert memory.peak <= (4 * 21 + 48) * 250 * 300 * 8


def test_numpy_arrays_give_a_numpy_array() -> None:
    image, masks = (tensor.float() for tensor in random_case(5, 9, 7))
    present = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0]])
    refined = tagseg.pamr(image.numpy(), masks.numpy(), present=present.numpy())
    assert isinstance(refined, np.ndarray)
    assert np.array_equal(refined, tagseg.pamr(image, masks, present=present).numpy())


def test_numpy_views_and_read_only_arrays(recwarn: pytest.WarningsRecorder) -> None:
    image, masks = (tensor.float().numpy() for tensor in random_case(5, 9, 7))
    expected = tagseg.pamr(image[..., ::-1].copy(), masks[..., ::-1].copy())
    image.flags.writeable = masks.flags.writeable = False
    assert np.array_equal(tagseg.pamr(image[..., ::-1], masks[..., ::-1]), expected)
    tagseg.pamr(image, masks)
    assert not recwarn.list


def test_tensors_and_arrays_cannot_be_mixed() -> None:
    image, masks = random_case(5, 9, 7)
    with pytest.raises(ValueError, match="cannot be mixed: image is a numpy array, masks is a tensor"):
        tagseg.pamr(image.numpy(), masks)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="image must be a torch tensor or a numpy array, got list"):
        tagseg.pamr([[0.5]], masks)  # type: ignore[type-var]
