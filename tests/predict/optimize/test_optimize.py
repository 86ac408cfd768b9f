import pickle
from collections.abc import Callable
from copy import deepcopy

import pytest
import torch

import tagseg
from tagseg.models import Network
from tagseg.predict.optimize import optimize_network
from tests.predict.optimize.networks import BUILDS, assert_matches_the_plain_network, with_random_norms

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("build", "num_norms"), BUILDS)
def test_gpu_passes_match_the_plain_network(build: Callable[[], Network], num_norms: int) -> None:
    assert_matches_the_plain_network(build, num_norms, fused=True)


def test_optimized_network_can_be_copied_and_pickled() -> None:
    network = tagseg.load().engine.network
    optimized = optimize_network(network, bfloat16=False)
    x = torch.rand(1, 3, 64, 64, device=network.mean.device)
    with torch.inference_mode():
        expected = optimized(x).scores
        for copied in (deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
            assert torch.equal(copied(x).scores, expected)


def test_original_network_is_not_changed() -> None:
    network = with_random_norms(tagseg.build_model("resnet18", 2)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    layouts = [value.stride() for value in network.state_dict().values()]
    optimize_network(network, bfloat16=True)
    assert network.training
    assert any(parameter.requires_grad for parameter in network.parameters())
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [value.stride() for value in network.state_dict().values()] == layouts
