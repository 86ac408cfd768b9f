from collections.abc import Callable
from math import inf

import pytest
import torch
from timm.layers.conv2d_same import Conv2dSame
from torch import Tensor, nn

from tagseg.predict.optimize.fused_conv import FusedConv2d
from tests.conftest import KERNEL_DEVICE

pytestmark = pytest.mark.gpu

CONVOLUTIONS = {
    "1x1": nn.Conv2d(20, 10, 1),
    "1x1, stride 2, no bias": nn.Conv2d(20, 10, 1, 2, bias=False),
    "1x1, full tiles": nn.Conv2d(64, 256, 1),
    "3x3": nn.Conv2d(20, 10, 3, padding=1),
    "3x3, full tiles": nn.Conv2d(64, 128, 3, padding=1, bias=False),
    "3x3, stride 2, no padding": nn.Conv2d(40, 7, 3, 2, bias=False),
    "3x3, dilated": nn.Conv2d(20, 33, 3, padding=4, dilation=4),
    "3x3, stride 2, same padding": Conv2dSame(20, 10, 3, 2),
    "5x5, stride 3, same padding": Conv2dSame(20, 10, 5, 3, bias=False),
    "depthwise": nn.Conv2d(20, 20, 3, padding=1, groups=20),
    "depthwise, 5x5, dilated": nn.Conv2d(70, 70, 5, padding=4, dilation=2, groups=70, bias=False),
    "depthwise, stride 2, same padding": Conv2dSame(20, 20, 3, 2, groups=20),
    "3 channels": nn.Conv2d(3, 10, 7, 2, padding=3),
    "3 channels, dilated": nn.Conv2d(3, 5, 3, padding=2, dilation=2),
    "3 channels, same padding": Conv2dSame(3, 10, 3, 2),
}


def feature_maps(channels: int, height: int, width: int) -> Tensor:
    return torch.randn(2, channels, height, width).to(KERNEL_DEVICE, memory_format=torch.channels_last)


def unaligned_maps(channels: int, height: int, width: int) -> Tensor:
    """Generate feature maps at an unaligned address."""
    values = torch.randn(1 + 2 * height * width * channels, device=KERNEL_DEVICE)
    return values[1:].view(2, height, width, channels).permute(0, 3, 1, 2)


def assert_equals_convolution(compute: Callable[..., Tensor], conv: nn.Conv2d, x: Tensor, limit: float | None) -> None:
    """Compare without a residual, with feature maps as residual, and with one value per channel."""
    plain = conv(x)
    for residual in (None, torch.randn_like(plain), torch.randn_like(plain[..., :1, :1])):
        output, expected = compute(x, residual), plain if residual is None else plain + residual
        expected = expected if limit is None else expected.clamp(0, limit)
        assert torch.allclose(output, expected, atol=2e-2 if x.is_cuda else 1e-5)  # a GPU uses TF32
        assert output.is_contiguous(memory_format=torch.channels_last)


@torch.no_grad()
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("size", [(9, 10), (5, 14)])
@pytest.mark.parametrize("limit", [None, inf, 0.5])
def test_equals_the_convolution(name: str, size: tuple[int, int], limit: float | None) -> None:
    conv = CONVOLUTIONS[name].to(KERNEL_DEVICE)
    assert FusedConv2d.supports(conv)
    assert_equals_convolution(FusedConv2d(conv, limit=limit), conv, feature_maps(conv.in_channels, *size), limit)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name, conv in CONVOLUTIONS.items() if conv.in_channels >= 20])
@pytest.mark.parametrize("limit", [None, 0.5])
@pytest.mark.parametrize("min_size", [1, 10**9])
def test_kernel_equals_the_convolution(
    name: str, limit: float | None, min_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from tagseg.predict.optimize import _fused_conv_triton
    from tagseg.predict.optimize._fused_conv_triton import convolve

    monkeypatch.setattr(_fused_conv_triton, "_MIN_PROGRAMS", min_size)  # large or small tiles
    monkeypatch.setattr(_fused_conv_triton, "_MAX_INT32_VALUES", min_size)  # 64-bit or 32-bit offsets
    conv = CONVOLUTIONS[name].to(KERNEL_DEVICE)
    fused = FusedConv2d(conv, limit=limit)
    x = feature_maps(conv.in_channels, 9, 12)
    assert_equals_convolution(lambda x, residual: convolve(x, fused, residual), conv, x, limit)


@torch.no_grad()
@pytest.mark.parametrize("name", ["1x1", "3x3, dilated", "depthwise"])
def test_cached_kernel_works_for_other_sizes_and_alignments(name: str) -> None:
    pytest.importorskip("triton")
    from tagseg.predict.optimize._fused_conv_triton import convolve

    conv = CONVOLUTIONS[name].to(KERNEL_DEVICE)
    fused, channels = FusedConv2d(conv), conv.in_channels
    for x in (feature_maps(channels, 9, 12), feature_maps(channels, 6, 7), unaligned_maps(channels, 6, 7)):
        assert_equals_convolution(lambda x, residual: convolve(x, fused, residual), conv, x, None)


@pytest.mark.parametrize(
    "conv",
    [nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding="same"), nn.Conv2d(4, 4, 3, padding_mode="reflect")],
)
def test_other_convolutions_are_not_supported(conv: nn.Conv2d) -> None:
    assert not FusedConv2d.supports(conv)
