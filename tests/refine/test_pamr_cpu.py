import pytest
import torch

import tagseg
from tagseg.benchmarks.timing import PeakBytes
from tagseg.refine import _pamr_cpu
from tests.refine.pamr_battery import PamrBattery, Refine


class TestPamrCpu(PamrBattery):
    @pytest.fixture
    def refine(self) -> Refine:
        return _pamr_cpu.refine


def test_needs_a_tenth_of_the_memory_of_all_neighbors() -> None:
    """All neighbors of all masks are 48 times the masks, and their products with the affinities as much again."""
    image, masks = torch.rand(16, 3, 81, 81), torch.rand(16, 21, 81, 81)
    with PeakBytes() as memory:
        tagseg.pamr(image, masks, iterations=1)
    assert memory.peak <= 0.1 * 48 * masks.numel() * 4


def test_allocates_affinities_and_columns_and_little_more() -> None:
    image, masks = torch.rand(1, 3, 150, 200), torch.rand(1, 21, 150, 200)
    with PeakBytes() as memory:
        tagseg.pamr(image, masks, iterations=2)
    assert memory.peak <= (2 * 48 + 4 * 21) * 150 * 200 * 4
