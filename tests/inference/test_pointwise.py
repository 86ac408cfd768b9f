import pytest
import torch
from torch import nn

from tagseg.inference.pointwise import Pointwise


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_is_the_convolution(stride: int, bias: bool) -> None:
    conv = nn.Conv2d(6, 10, 1, stride, bias=bias)
    assert Pointwise.fits(conv)
    for size in ((1, 1), (7, 10)):
        x = torch.randn(2, 6, *size).to(memory_format=torch.channels_last)
        found = Pointwise(conv)(x)
        assert torch.allclose(found, conv(x), atol=1e-6)
        assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("conv", [nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1, groups=2), nn.Conv2d(4, 4, 1, padding=1)])
def test_other_convolutions_stay_as_they_are(conv: nn.Conv2d) -> None:
    assert not Pointwise.fits(conv)
