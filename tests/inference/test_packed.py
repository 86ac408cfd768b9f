"""Convolutions that keep sorted weights give the bits of torch's own, whatever sizes they saw before."""

import pickle
from copy import deepcopy
from math import inf

import pytest
import torch
from torch import Tensor, nn

from tagseg.inference.packed import Packed
from tests.inference.test_cost import Operations

CONVOLUTIONS = {
    "1x1": nn.Conv2d(64, 32, 1),
    "3x3": nn.Conv2d(20, 10, 3, padding=1, bias=False),
    "3x3, stride 2": nn.Conv2d(20, 10, 3, 2, padding=1),
    "dilated beyond the border": nn.Conv2d(20, 10, 3, padding=12, dilation=12),
    "depthwise": nn.Conv2d(20, 20, 3, padding=1, groups=20),
    "of a picture": nn.Conv2d(3, 10, 7, 2, padding=3),
}
REORDER = "mkldnn._reorder_convolution_weight.default"

pytestmark = pytest.mark.skipif(
    not Packed.fits(nn.Conv2d(1, 1, 1, dtype=torch.bfloat16)), reason="this CPU does not multiply bfloat16 by oneDNN"
)


def in_half(conv: nn.Conv2d) -> nn.Conv2d:
    return deepcopy(conv).bfloat16().to(memory_format=torch.channels_last).requires_grad_(False)


def some_maps(conv: nn.Conv2d, height: int, width: int) -> Tensor:
    return torch.randn(1, conv.in_channels, height, width).bfloat16().to(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("limit", [None, inf, 0.5])
def test_has_the_same_bits(name: str, limit: float | None) -> None:
    conv = in_half(CONVOLUTIONS[name])
    packed = Packed(conv, limit=limit)
    for size in [(9, 10), (9, 10), (9, 10), (5, 14), (9, 10), (24, 32), (24, 32), (1, 1), (1, 1)]:
        x = some_maps(conv, *size)
        plain = conv(x)
        for added in (None, torch.randn_like(plain), torch.randn_like(plain[..., :1, :1]), torch.randn(plain.shape)):
            expected = plain if added is None else plain + added
            expected = expected if limit is None else expected.clamp(0, limit)
            found = packed(x, added)
            assert found.dtype == expected.dtype
            if name == "dilated beyond the border":  # taps that see nothing are not summed, which rounds differently
                torch.testing.assert_close(found, expected)
            else:
                assert torch.equal(found, expected)


def test_weights_are_sorted_when_a_size_comes_again() -> None:
    conv = in_half(CONVOLUTIONS["3x3"])
    packed = Packed(conv)

    def sorts(*sizes: tuple[int, int]) -> int:
        operations = Operations()
        with operations:
            for size in sizes:
                packed(some_maps(conv, *size))
        return operations.counts[REORDER]

    assert sorts((9, 10), (5, 14), (9, 10), (5, 14)) == 0
    assert sorts((9, 10), (9, 10), (9, 10), (9, 10)) == 1
    assert sorts((9, 10), (5, 14)) == 0


def test_can_be_copied_and_sent_after_use() -> None:
    conv = in_half(CONVOLUTIONS["3x3"])
    packed, x = Packed(conv, limit=inf), some_maps(conv, 9, 10)
    expected = [packed(x) for _ in range(2)][1]
    for other in (deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        assert torch.equal(other(x), expected)


def test_float32_is_left_to_torch() -> None:
    assert not Packed.fits(nn.Conv2d(3, 4, 3))
