import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st

import tagseg
from tagseg.models.pooling import POOLINGS, build_penalty, gwp, lse, with_background
from tests.compare import assert_close
from tests.conftest import Reference

few = settings(max_examples=25, deadline=None)


def test_reference_scores(reference: Reference) -> None:
    golden = reference("scores.npz")
    masks = with_background(golden["logits"]).softmax(1)
    assert_close(masks, golden["masks"])
    scores = tagseg.ngwp(golden["logits"], masks[:, 1:])
    assert_close(scores, golden["ngwp"])
    assert_close(scores + tagseg.focal_penalty(masks[:, 1:]), golden["score_p3_l001"])


@pytest.mark.parametrize("p", [0, 3, 5])
@pytest.mark.parametrize(("lam", "name"), [(0.1, "01"), (0.01, "001"), (0.001, "0001")])
def test_reference_penalty(reference: Reference, p: int, lam: float, name: str) -> None:
    golden = reference("scores.npz")
    assert_close(tagseg.focal_penalty(golden["masks"][:, 1:], p=p, lam=lam), golden[f"focal_p{p}_l{name}"])


@few
@given(st.integers(0, 1000), st.floats(1e-12, 1e-7))
def test_ngwp_tends_to_zero_as_masks_vanish(seed: int, size: float) -> None:
    """The limit of Supp. B.1."""
    generator = torch.Generator().manual_seed(seed)
    logits = 20 * torch.randn(1, 3, 6, 5, generator=generator)
    masks = size * torch.rand(1, 3, 6, 5, generator=generator)
    assert tagseg.ngwp(logits, masks).abs().max() < 1e-3


@few
@given(st.floats(-10, 10), st.floats(0.05, 1), st.integers(10, 40))
def test_ngwp_of_a_constant_score_map_is_its_value_up_to_epsilon(value: float, mask: float, side: int) -> None:
    logits = torch.full((1, 1, side, side), value, dtype=torch.float64)
    masks = torch.full_like(logits, mask)
    weight = mask * side * side
    assert tagseg.ngwp(logits, masks).item() == pytest.approx(value * weight / (1 + weight))
    assert tagseg.ngwp(logits, masks, epsilon=0).item() == pytest.approx(value)


def test_ngwp_does_not_depend_on_the_masks_size_but_gwp_does() -> None:
    logits = torch.full((1, 1, 20, 20), 4.0)
    small, large = torch.zeros_like(logits), torch.zeros_like(logits)
    small[..., :5, :5] = large[..., :15, :15] = 1
    assert tagseg.ngwp(logits, small, epsilon=0) == tagseg.ngwp(logits, large, epsilon=0)
    assert gwp(logits, large) / gwp(logits, small) == pytest.approx(9)


def test_log_sum_exp_lies_between_mean_and_maximum() -> None:
    logits = torch.randn(2, 3, 7, 8)
    low, high = logits.mean((2, 3)), logits.amax((2, 3))
    assert torch.allclose(lse(logits, logits, sharpness=1e-2), low, atol=0.02)
    assert torch.allclose(lse(logits, logits, sharpness=1e3), high, atol=0.02)
    assert ((lse(logits, logits) > low) & (lse(logits, logits) < high)).all()


@pytest.mark.parametrize("name", POOLINGS)
def test_every_pooling_has_one_score_per_class_and_finite_gradients(name: str) -> None:
    logits = (30 * torch.randn(2, 4, 9, 7)).requires_grad_()
    masks = with_background(logits).softmax(1)[:, 1:]
    scores = POOLINGS[name](logits, masks)
    scores.sum().backward()
    assert scores.shape == (2, 4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_penalty_of_empty_and_full_masks() -> None:
    assert tagseg.focal_penalty(torch.zeros(1, 1, 4, 4)).item() == pytest.approx(math.log(0.01))
    assert abs(tagseg.focal_penalty(torch.ones(1, 1, 4, 4)).item()) < 1e-6
    masks = torch.rand(1, 3, 4, 4)
    plain = build_penalty("plain", p=3, lam=0.1)
    assert plain is not None
    assert_close(plain(masks), (0.1 + masks.mean((2, 3))).log())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tagseg.ngwp(torch.rand(1, 2, 3, 3), torch.rand(1, 3, 3, 3)), "come without the background"),
        (lambda: tagseg.ngwp(torch.rand(2, 3, 3), torch.rand(2, 3, 3)), "logits must be"),
        (lambda: tagseg.focal_penalty(torch.rand(2, 3)), "masks must be"),
        (lambda: tagseg.focal_penalty(torch.rand(1, 2, 3, 3), p=-1), "p must be 0 or more, got -1"),
        (lambda: tagseg.focal_penalty(torch.rand(1, 2, 3, 3), lam=0), "lam must be more than 0, got 0"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
