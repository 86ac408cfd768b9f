import operator

import pytest
import torch
from torch import fx, nn

import tagseg
from tagseg.predict.optimize import optimize_network
from tagseg.predict.optimize.fused_conv import FusedConv2d


@pytest.mark.parametrize(
    ("backbone", "count", "other_calls"), [("resnet50", 67, 17), ("tf_efficientnet_lite0", 62, 16)]
)
def test_each_convolution_is_one_call(backbone: str, count: int, other_calls: int) -> None:
    # The number of launches limits a GPU, so sums, ReLUs and batch norms must be fused into the convolutions.
    with torch.device("meta"):
        network = tagseg.build_model(backbone, 20)
    convolutions = sum(isinstance(module, nn.Conv2d) for module in network.modules())
    optimized = optimize_network(network, bfloat16=True, passes=("fold", "fuse"))
    nodes = [node for graph in optimized.modules() if isinstance(graph, fx.GraphModule) for node in graph.graph.nodes]
    calls = [node for node in nodes if node.op.startswith("call_") and node.target not in (getattr, operator.getitem)]
    assert sum(isinstance(module, FusedConv2d) for module in optimized.modules()) == convolutions == count
    assert len(calls) <= count + other_calls  # other operations of the ASPP and the gate
