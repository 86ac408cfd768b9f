from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import tagseg
from tagseg.inference.dilated import Dilated
from tagseg.inference.prepared import prepare
from tagseg.models import Network, Segmentation
from tagseg.models.backbones import build_backbone
from tagseg.models.config import ModelConfig
from tagseg.models.pooling import with_background
from tests.compare import assert_close


class TwoReaders(Network):
    """Two convolutions with a batch norm each; one is read by a sum as well."""

    def __init__(self) -> None:
        super().__init__(ModelConfig(backbone="resnet18", class_names=("a",)), build_backbone("resnet18"))
        self.first, self.first_norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.second, self.second_norm = nn.Conv2d(4, 1, 1), nn.BatchNorm2d(1)

    def forward(self, x: Tensor, *, full_size: bool = True) -> Segmentation:  # noqa: ARG002  it knows one size only
        x = self.first(x)
        logits = with_background(self.second_norm(self.second(self.first_norm(x) + x)))
        return Segmentation(logits[:, 1:].amax((2, 3)), logits.softmax(1), logits)


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


@pytest.mark.parametrize(
    ("build", "left"),
    [
        (partial(tagseg.build_model, "resnet50", 2), 0),
        (partial(tagseg.build_model, "resnet18", 2, gci="paper"), 0),
        (partial(tagseg.build_cam, "resnet18", 2), 0),
        (partial(tagseg.build_model, "mobilenetv2_100", 2), None),  # timm's batch norms have an activation: they stay
        (TwoReaders, 21),  # the one behind two readers, and those of the backbone, which nobody calls
    ],
)
def test_a_prepared_network_says_the_same(build: Callable[[], Network], left: int | None) -> None:
    torch.manual_seed(0)
    network = with_statistics(build())
    prepared = prepare(network, half=False)
    x = torch.rand(2, 3, 65, 80)
    with torch.inference_mode():
        expected, found = network(x), prepared(x.to(memory_format=torch.channels_last))
    assert_close(found.logits, expected.logits)  # the masks of random weights jump where two classes are equal
    assert_close(found.scores, expected.scores)
    assert left is None or norms(prepared) == left


@pytest.mark.parametrize("size", [(1, 1), (5, 30), (12, 13), (25, 36), (24, 80)])
@pytest.mark.parametrize("dilation", [2, 12, 24, 36])
def test_taps_on_padding_are_not_missed(size: tuple[int, int], dilation: int) -> None:
    conv = nn.Conv2d(3, 4, 3, padding=dilation, dilation=dilation)
    assert Dilated.fits(conv)
    x = torch.rand(2, 3, *size)
    assert_close(Dilated(conv)(x), conv(x))


def test_only_centred_dilated_convolutions_fit() -> None:
    for options in ({"padding": 1}, {"dilation": 2}, {"padding": 2, "dilation": 2, "stride": 2}):
        assert not Dilated.fits(nn.Conv2d(3, 4, 3, **options))  # type: ignore[arg-type]


def test_the_network_itself_stays_as_it_is() -> None:
    network = with_statistics(tagseg.build_model("resnet18", 2)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    layouts = [value.stride() for value in network.state_dict().values()]
    prepare(network, half=True)
    assert network.training
    assert any(parameter.requires_grad for parameter in network.parameters())
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [value.stride() for value in network.state_dict().values()] == layouts
