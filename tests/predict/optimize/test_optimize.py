import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tagseg
from tagseg.models import CAM, ModelConfig, Network
from tagseg.models.backbones import Backbone
from tagseg.predict.optimize import optimize_network
from tests.compare import assert_close, relative_error
from tests.conftest import KERNEL_DEVICE

pytestmark = pytest.mark.gpu


class TwoReaders(Backbone):
    """Two convolutions with a batch norm each; one is read by a sum as well."""

    skip_channels = deep_channels = 4

    def __init__(self) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.second, self.second_norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(x)
        return x, self.second_norm(self.second(self.first_norm(x) + x))

    def first_layers(self) -> Iterable[nn.Module]:
        return ()


class ChangedInPlace(TwoReaders):
    """A sum in place whose first term is read again."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shallow = x = self.first(x)
        x += self.second(shallow.sigmoid())
        return shallow, self.second_norm(x * shallow)


class OneValue(TwoReaders):
    """Sums of a map and one value for all of it: the map convolved, or the value."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean((1, 2, 3), keepdim=True)
        x = F.relu(self.first(x) + mean)
        return x, x + self.second(x.mean((2, 3), keepdim=True))


class SeenThroughAView(TwoReaders):
    """A sum in place whose first term is a view of what is read again."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shallow = self.first(x).sigmoid()
        view = shallow.transpose(2, 3).transpose(2, 3)
        view += self.second(shallow)
        return shallow, self.second_norm(shallow * 1)


class Adds(nn.Module):
    """Changes its argument in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x += self.conv(y)
        return x


class ChangedArgument(TwoReaders):
    """It has no graph itself, and a part of it changes what it reads again."""

    def __init__(self) -> None:
        super().__init__()
        self.adds = Adds()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shallow = self.first(x).sigmoid() if float(x.shape[0]) else x
        self.adds(shallow, self.second(shallow))
        return shallow, self.second_norm(shallow * 1)


class Unusual(TwoReaders):
    """Arguments by name, and a number that is added."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(input=x) + x.shape[0]
        return x, self.second(x) + x.shape[0]


class Hidden(TwoReaders):
    """It decides something in a way that no tracer sees."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x.sigmoid() if isinstance(x, Tensor) else x)


class Busy(TwoReaders):
    """Another thread runs another network all the time."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(OTHER, IMAGE).result()[1].shape == (1, 4, 8, 8)
        return super().forward(x)


OTHER, IMAGE = TwoReaders().eval(), torch.zeros(1, 3, 8, 8)


def cam_on(backbone: Callable[[], Backbone]) -> Network:
    return CAM(ModelConfig(method="cam", backbone="resnet18", class_names=("a",)), backbone())


def with_statistics(network: Network) -> Network:
    """Batch norms that do something: fresh ones multiply by 1 and add 0."""
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean, norm.running_var = (
                torch.randn(norm.num_features) / 10,
                torch.rand(norm.num_features) + 0.5,
            )
            if norm.affine:
                nn.init.uniform_(norm.weight, 0.5, 1.5)
                nn.init.normal_(norm.bias, std=0.1)
    return network.eval()


def norms(network: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


# And how many batch norms are left.
BUILDS = [
    (partial(tagseg.build_model, "resnet50", 2), 0),
    (partial(tagseg.build_model, "resnet18", 2, gci="paper"), 0),
    (partial(tagseg.build_model, "resnet18", 2, gate="none"), 0),
    (partial(tagseg.build_cam, "resnet18", 2), 0),
    (partial(tagseg.build_cam, "vgg16", 2), 0),
    (partial(tagseg.build_cam, "wideresnet38", 2), 17),  # most of its batch norms come before a convolution
    (partial(tagseg.build_cam, "mobilenetv2_100", 2), 0),
    (partial(tagseg.build_model, "tf_efficientnet_lite0", 2), 0),
    (partial(tagseg.build_cam, "convnext_tiny", 2), 0),
    (partial(tagseg.build_cam, "densenet121", 2), 62),
    (partial(tagseg.build_cam, "regnety_002", 2), 0),
    (partial(tagseg.build_cam, "hrnet_w18_small", 2), 0),
    (partial(tagseg.build_cam, "ghostnet_100", 2), 0),
    (partial(tagseg.build_cam, "inception_v3", 2), 0),
    (partial(cam_on, TwoReaders), 1),
    (partial(cam_on, ChangedInPlace), 1),
    (partial(cam_on, SeenThroughAView), 1),
    (partial(cam_on, ChangedArgument), 2),
    (partial(cam_on, Unusual), 0),
    (partial(cam_on, OneValue), 0),
    (partial(cam_on, Hidden), 2),
    (partial(cam_on, Busy), 1),
]


@pytest.mark.parametrize(("build", "left"), BUILDS)
def test_the_form_for_gpus_says_the_same(build: Callable[[], Network], left: int) -> None:
    assert_says_the_same(build, left, fused=True)


@pytest.mark.parametrize("backbone", ["resnet50", "tf_efficientnet_lite0"])
def test_the_form_for_cpus_says_the_same(backbone: str) -> None:
    assert_says_the_same(partial(tagseg.build_model, backbone, 2), 0, fused=False)


@pytest.mark.parametrize(("build", "left"), BUILDS)
def test_the_form_for_cpus_says_the_same_in_half_precision(build: Callable[[], Network], left: int) -> None:
    torch.manual_seed(0)
    network = with_statistics(build())
    optimized = optimize_network(network, bfloat16=True, passes=("fold",))
    x = torch.rand(2, 3, 65, 80)
    with torch.inference_mode():
        exact = network(x).scores
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounding = relative_error(network(x).scores, exact)
            found = optimized(x.to(memory_format=torch.channels_last)).scores
    assert_close(found, exact, tolerance=1e-2 + 4 * rounding)
    assert norms(optimized) == left


def assert_says_the_same(build: Callable[[], Network], left: int, *, fused: bool) -> None:
    torch.manual_seed(0)
    network = with_statistics(build()).to(KERNEL_DEVICE if fused else "cpu")
    optimized = optimize_network(network, bfloat16=False, passes=("fold", "fuse") if fused else ("fold",))
    x = torch.rand(2, 3, 65, 80, device=network.mean.device)
    with torch.inference_mode():
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            expected = network(x)
        rounded, found = network(x), optimized(x.to(memory_format=torch.channels_last))
    for name in ("logits", "scores"):  # not the masks: those of random weights jump where two classes are equal
        exact = getattr(expected, name)
        rounding = relative_error(getattr(rounded, name), exact)  # what TF32 costs the network itself on a GPU
        assert_close(getattr(found, name), exact, tolerance=1e-4 + 4 * rounding)
    assert norms(optimized) == left


def test_a_optimized_network_can_be_copied_and_sent() -> None:
    network = tagseg.load().engine.network
    optimized = optimize_network(network, bfloat16=False)
    x = torch.rand(1, 3, 64, 64, device=network.mean.device)
    with torch.inference_mode():
        expected = optimized(x).scores
        for other in (deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
            assert torch.equal(other(x).scores, expected)


def test_the_network_itself_stays_as_it_is() -> None:
    network = with_statistics(tagseg.build_model("resnet18", 2)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    layouts = [value.stride() for value in network.state_dict().values()]
    optimize_network(network, bfloat16=True)
    assert network.training
    assert any(parameter.requires_grad for parameter in network.parameters())
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [value.stride() for value in network.state_dict().values()] == layouts
