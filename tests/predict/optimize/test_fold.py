from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, fx, nn

import tagseg
from tagseg.models import Network
from tagseg.predict.optimize import optimize_network
from tagseg.predict.optimize.fold import fold_batch_norms
from tests.compare import assert_close, relative_error
from tests.predict.optimize.networks import BUILDS, assert_matches_the_plain_network, count_norms, with_random_norms


class Block(nn.Module):
    """A convolution and its batch norm with dropout in between, and a convolution whose output is also used later."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.dropout, self.norm = nn.Conv2d(3, 4, 3), nn.Dropout2d(), nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 1)
        self.relu, self.last_relu = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.relu(self.norm(self.dropout(self.first(x)))))
        return x + self.last_relu(x)  # type: ignore[no-any-return]


@torch.inference_mode()
def test_only_values_without_other_users_are_overwritten() -> None:
    block = with_random_norms(Block())
    graph = fx.symbolic_trace(block)
    x = torch.randn(2, 3, 9, 9)
    expected = block(x)
    fold_batch_norms(graph)
    assert_close(graph(x), expected)
    modules = dict(graph.named_children())
    assert set(modules) == {"first", "second", "relu", "last_relu"}
    assert modules["relu"].inplace
    assert not modules["last_relu"].inplace


@pytest.mark.parametrize("backbone", ["resnet50", "tf_efficientnet_lite0"])
def test_cpu_passes_match_the_plain_network(backbone: str) -> None:
    assert_matches_the_plain_network(partial(tagseg.build_model, backbone, 2), 0, fused=False)


@pytest.mark.parametrize(("build", "num_norms"), BUILDS)
def test_cpu_passes_match_the_plain_network_in_half_precision(build: Callable[[], Network], num_norms: int) -> None:
    torch.manual_seed(0)
    network = with_random_norms(build())
    optimized = optimize_network(network, bfloat16=True, passes=("fold",))
    x = torch.rand(2, 3, 65, 80)
    with torch.inference_mode():
        exact = network(x).scores
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounding = relative_error(network(x).scores, exact)
            output = optimized(x.to(memory_format=torch.channels_last)).scores
    assert_close(output, exact, tolerance=1e-2 + 4 * rounding)
    assert count_norms(optimized) == num_norms
