"""What a prediction costs, in counts that are the same on every machine."""

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

import tagseg
from tagseg.benchmarks.timing import PeakBytes
from tagseg.predict.engine import MAX_PIXELS
from tagseg.predict.optimize import optimize_network
from tagseg.predict.optimize.fused_conv import FusedConv2d
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings
from tagseg.predict.tta import run_tta
from tests.predict.conftest import wavy


class Operations(TorchDispatchMode):
    """Counts torch's operations by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("backbone", "count", "others"), [("resnet50", 67, 17), ("tf_efficientnet_lite0", 62, 16)])
def test_a_gpu_is_asked_once_for_each_convolution(backbone: str, count: int, others: int) -> None:
    # What the host asks for is what limits a GPU: sums, ReLUs and batch norms are part of the convolutions.
    with torch.device("meta"):
        network = tagseg.build_model(backbone, 20)
    convolutions = sum(isinstance(module, nn.Conv2d) for module in network.modules())
    optimized = optimize_network(network, bfloat16=True, passes=("fold", "fuse"))
    nodes = [node for graph in optimized.modules() if isinstance(graph, fx.GraphModule) for node in graph.graph.nodes]
    calls = [node for node in nodes if node.op.startswith("call_") and node.target not in (getattr, operator.getitem)]
    assert sum(isinstance(module, FusedConv2d) for module in optimized.modules()) == convolutions == count
    assert len(calls) <= count + others  # what the ASPP and the gate do between convolutions


def test_nothing_is_done_image_by_image(predictor: Predictor) -> None:
    def count(images: int) -> Counter[str]:
        arrays = [wavy(48, 64, seed) for seed in range(images)]
        operations = Operations()
        with operations:
            found = list(predictor.predict_many(arrays, batch_size=8, tta=True, probabilities=False))
        assert len(found) == images
        return operations.counts

    assert count(5) == count(2)


def test_both_flips_of_a_scale_share_one_call(predictor: Predictor) -> None:
    seen: list[int] = []
    hook = predictor.engine.runner.register_forward_hook(lambda _module, args, _output: seen.append(len(args[0])))
    list(predictor.predict_many([wavy(48, 64, seed) for seed in range(3)], batch_size=8, tta=True))
    hook.remove()
    assert seen == [6] * len(predictor.settings.scales)


def test_the_network_never_sees_more_than_max_pixels() -> None:
    predictor = Predictor(tagseg.build_model("resnet18", 2), device="cpu", precision="float32", max_pixels=256 * 256)
    seen: list[int] = []
    predictor.engine.runner.register_forward_hook(lambda _m, args, _o: seen.append(args[0][:, 0].numel()))
    list(predictor.predict_many([wavy(140, 200, seed) for seed in range(3)], batch_size=8, tta=True))
    assert max(seen) <= 256 * 256


def test_quality_at_scale_2_stays_within_1_gib() -> None:
    # On the meta device tensors have sizes but no content, so a network of full size costs nothing.
    network = optimize_network(tagseg.build_model("resnet50", 20), bfloat16=False).to("meta")
    images = torch.zeros(1, 375, 500, 3, dtype=torch.uint8, device="meta").permute(0, 3, 1, 2)
    settings = InferenceSettings(scales=(1.0, 0.5, 1.5, 2.0))
    with torch.inference_mode(), PeakBytes() as memory:
        output = run_tta(network, images, settings, max_pixels=MAX_PIXELS)
        output.merge(*(torch.zeros(shape, dtype=torch.long, device="meta") for shape in ((1,), (1, 21))))
    weights = sum(value.nbytes for value in network.state_dict().values())
    assert memory.peak + weights < 2**30
