import pytest
import torch
from hypothesis import given, settings, strategies as st

from tagseg.models.gate import DeterministicGate, GlobalCueInjection, StochasticGate
from tests.compare import assert_close
from tests.conftest import Reference, needs_gpu
from tests.reference_networks import fill


@pytest.mark.parametrize(("psi", "name"), [(0.3, "eval_psi03"), (0.5, "eval_psi05")])
def test_reference_gate(reference: Reference, psi: float, name: str) -> None:
    golden = reference("gate.npz")
    assert_close(StochasticGate(psi).eval()(golden["deep"], golden["shallow"]), golden[name])
    assert_close(DeterministicGate(psi)(golden["deep"], golden["shallow"]), golden[name])


def test_reference_global_cue_injection(reference: Reference) -> None:
    golden = reference("gci.npz")
    module = fill(GlobalCueInjection(256), lambda name: name.replace("shallow_mask.", "gci."), prefix="shallow.").eval()
    assert_close(module(golden["shallow"], golden["deep"]), golden["out"])


@pytest.mark.gpu
@needs_gpu
def test_compiled_global_cue_injection_has_the_same_gradients_in_half_precision() -> None:
    """Compiled kernels round less often, so gradients must not depend on equal values."""
    torch.manual_seed(0)
    module = GlobalCueInjection(4, 8).cuda().train()
    shallow, deep = torch.randn(2, 4, 12, 12, device="cuda"), torch.randn(2, 8, 12, 12, device="cuda")
    torch.compiler.reset()
    gradients = []
    for forward in (module, torch.compile(module, dynamic=False)):
        module.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(shallow, deep).float().square().mean()
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]))
    assert (gradients[1] - gradients[0]).norm() < 0.1 * gradients[0].norm()


@settings(max_examples=8, deadline=None)
@given(st.floats(0.05, 0.8), st.booleans(), st.integers(0, 100))
def test_expectation_of_the_stochastic_gate_is_the_deep_features(psi: float, per_pixel: bool, seed: int) -> None:
    torch.manual_seed(seed)
    deep, shallow = torch.randn(1, 3, 2, 2), torch.randn(1, 3, 2, 2)
    gate = StochasticGate(psi, per_pixel=per_pixel).train()
    draws = 20_000
    mixed = gate(deep.expand(draws, -1, -1, -1), shallow.expand(draws, -1, -1, -1))
    # Six standard errors of the mean of a two-point distribution.
    spread = ((deep - psi * shallow) / (1 - psi) - shallow).abs() * (psi * (1 - psi) / draws) ** 0.5
    assert ((mixed.mean(0, keepdim=True) - deep).abs() <= 6 * spread + 1e-5).all()


def test_draws_are_per_element_or_per_pixel() -> None:
    deep, shallow = torch.zeros(1, 64, 8, 8), torch.ones(1, 64, 8, 8)
    by_element = (StochasticGate(0.5).train()(deep, shallow) == 1).float()
    by_pixel = (StochasticGate(0.5, per_pixel=True).train()(deep, shallow) == 1).float()
    assert 0 < by_element.mean((0, 2, 3)).min() < 1
    assert by_element.var(1).max() > 0
    assert by_pixel.var(1).max() == 0
    assert 0 < by_pixel.mean() < 1


def test_deterministic_gate_is_the_same_in_training() -> None:
    deep, shallow = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    gate = DeterministicGate(0.5)
    assert torch.equal(gate.train()(deep, shallow), gate.eval()(deep, shallow))


def test_global_cues_of_the_paper_use_moments_per_image() -> None:
    """With the paper's formula, features do not depend on the rest of the batch in training."""
    shallow, deep = torch.randn(4, 8, 6, 6), torch.randn(4, 16, 6, 6)
    for paper in (True, False):
        module = GlobalCueInjection(8, 16, instance_moments=paper).train()
        module.cues.eval()
        module.merge.eval()
        single, batched = module(shallow[:1], deep[:1]), module(shallow, deep)[:1]
        assert torch.allclose(single, batched, atol=1e-5) == paper


@pytest.mark.parametrize("psi", [-0.1, 1.0, 2.0])
def test_psi_out_of_range_is_refused(psi: float) -> None:
    with pytest.raises(ValueError, match=f"psi must be at least 0 and less than 1, got {psi}"):
        StochasticGate(psi)
