import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tagseg.inference.early import EarlyJoin
from tagseg.models.network import enlarge
from tests.compare import assert_close

DEEP, SKIP, OUTPUTS = 20, 6, 16


@torch.inference_mode()
@pytest.mark.parametrize(
    ("small", "big"), [((1, 1), (4, 3)), ((2, 3), (7, 9)), ((5, 6), (20, 24)), ((6, 2), (47, 1)), ((9, 9), (10, 10))]
)
@pytest.mark.parametrize("bias", [True, False])
def test_is_the_convolution_of_the_enlarged_maps(small: tuple[int, int], big: tuple[int, int], bias: bool) -> None:
    conv = nn.Conv2d(DEEP + SKIP, OUTPUTS, 3, padding=1, bias=bias)
    deep, skip = torch.randn(2, DEEP, *small), torch.randn(2, SKIP, *big)
    expected = F.relu(conv(torch.cat([enlarge(deep, big), skip], dim=1)))
    for layout in (torch.contiguous_format, torch.channels_last):
        found = EarlyJoin(conv, DEEP)(deep.to(memory_format=layout), skip.to(memory_format=layout))
        assert_close(found, expected)


@torch.inference_mode()
def test_multiplies_a_third_and_never_more() -> None:
    conv = nn.Conv2d(256 + 48, 256, 3, padding=1)
    join = EarlyJoin(conv, 256)

    def multiplied(small: int, big: int) -> tuple[int, int]:
        deep, skip = torch.zeros(1, 256, small, small), torch.zeros(1, 48, big, big)
        with FlopCounterMode(display=False) as early:
            join(deep, skip)
        with FlopCounterMode(display=False) as plain:
            conv(torch.cat([enlarge(deep, (big, big)), skip], dim=1))
        return early.get_total_flops(), plain.get_total_flops()

    early, plain = multiplied(24, 96)
    assert early < plain / 3
    early, plain = multiplied(48, 50)  # nothing to save
    assert early == plain
