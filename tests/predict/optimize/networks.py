"""Networks that are hard to optimize correctly, and their comparison with the plain network."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tagseg
from tagseg.models import CAM, ModelConfig, Network
from tagseg.models.backbones import Backbone
from tagseg.predict.optimize import optimize_network
from tests.compare import assert_close, relative_error
from tests.conftest import KERNEL_DEVICE

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class TwoConvolutions(Backbone):
    """Two convolutions with a batch norm each; the output of one is also used by a sum."""

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


class InPlaceSum(TwoConvolutions):
    """An in-place sum whose first term is used again."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shallow = x = self.first(x)
        x += self.second(shallow.sigmoid())
        return shallow, self.second_norm(x * shallow)


class BroadcastSum(TwoConvolutions):
    """Sums of feature maps and a value per image, with the convolution on either side."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean((1, 2, 3), keepdim=True)
        x = F.relu(self.first(x) + mean)
        return x, x + self.second(x.mean((2, 3), keepdim=True))


class InPlaceSumOfView(TwoConvolutions):
    """An in-place sum whose first term is a view of a tensor that is used again."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shallow = self.first(x).sigmoid()
        view = shallow.transpose(2, 3).transpose(2, 3)
        view += self.second(shallow)
        return shallow, self.second_norm(shallow * 1)


class InPlaceModule(nn.Module):
    """A module that changes its argument in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x += self.conv(y)
        return x


class UntraceableInPlace(TwoConvolutions):
    """A backbone that cannot be traced, with a submodule that changes a tensor in place that is used again."""

    def __init__(self) -> None:
        super().__init__()
        self.in_place = InPlaceModule()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shallow = self.first(x).sigmoid() if float(x.shape[0]) else x
        self.in_place(shallow, self.second(shallow))
        return shallow, self.second_norm(shallow * 1)


class KeywordArguments(TwoConvolutions):
    """A convolution called with a keyword argument, and sums with a number."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(input=x) + x.shape[0]
        return x, self.second(x) + x.shape[0]


class TypeDependent(TwoConvolutions):
    """A branch on the type of its input, which tracing changes."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x.sigmoid() if isinstance(x, Tensor) else x)


class RunsAnotherNetwork(TwoConvolutions):
    """Another thread runs another network during the forward pass."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(OTHER_NETWORK, IMAGE).result()[1].shape == (1, 4, 8, 8)
        return super().forward(x)


OTHER_NETWORK, IMAGE = TwoConvolutions().eval(), torch.zeros(1, 3, 8, 8)


def cam_on(backbone: Callable[[], Backbone]) -> Network:
    return CAM(ModelConfig(method="cam", backbone="resnet18", class_names=("a",)), backbone())


def with_random_norms(network: ModuleT) -> ModuleT:
    """Randomize the batch norms, since new ones are the identity."""
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


def count_norms(network: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


# Networks, and the number of batch norms that cannot be folded.
BUILDS = [
    (partial(tagseg.build_model, "resnet50", 2), 0),
    (partial(tagseg.build_model, "resnet18", 2, gci="paper"), 0),
    (partial(tagseg.build_model, "resnet18", 2, gate="none"), 0),
    (partial(tagseg.build_cam, "resnet18", 2), 0),
    (partial(tagseg.build_cam, "vgg16", 2), 0),
    (partial(tagseg.build_cam, "wideresnet38", 2), 17),  # most of its batch norms precede a convolution
    (partial(tagseg.build_cam, "mobilenetv2_100", 2), 0),
    (partial(tagseg.build_model, "tf_efficientnet_lite0", 2), 0),
    (partial(tagseg.build_cam, "convnext_tiny", 2), 0),
    (partial(tagseg.build_cam, "densenet121", 2), 62),
    (partial(tagseg.build_cam, "regnety_002", 2), 0),
    (partial(tagseg.build_cam, "hrnet_w18_small", 2), 0),
    (partial(tagseg.build_cam, "ghostnet_100", 2), 0),
    (partial(tagseg.build_cam, "inception_v3", 2), 0),
    (partial(cam_on, TwoConvolutions), 1),
    (partial(cam_on, InPlaceSum), 1),
    (partial(cam_on, InPlaceSumOfView), 1),
    (partial(cam_on, UntraceableInPlace), 2),
    (partial(cam_on, KeywordArguments), 0),
    (partial(cam_on, BroadcastSum), 0),
    (partial(cam_on, TypeDependent), 2),
    (partial(cam_on, RunsAnotherNetwork), 1),
]


def assert_matches_the_plain_network(build: Callable[[], Network], num_norms: int, *, fused: bool) -> None:
    torch.manual_seed(0)
    network = with_random_norms(build()).to(KERNEL_DEVICE if fused else "cpu")
    optimized = optimize_network(network, bfloat16=False, passes=("fold", "fuse") if fused else ("fold",))
    x = torch.rand(2, 3, 65, 80, device=network.mean.device)
    with torch.inference_mode():
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            expected = network(x)
        rounded, output = network(x), optimized(x.to(memory_format=torch.channels_last))
    for name in ("logits", "scores"):  # not the masks: with random weights they jump where two classes are nearly equal
        exact = getattr(expected, name)
        rounding = relative_error(getattr(rounded, name), exact)  # error of the plain network with TF32 on a GPU
        assert_close(getattr(output, name), exact, tolerance=1e-4 + 4 * rounding)
    assert count_norms(optimized) == num_norms
