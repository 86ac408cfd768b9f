from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import KERNEL_DEVICE, needs_gpu
from tests.refine.pamr_battery import SETTINGS, PamrBattery, Refine, sample

_pamr_triton = pytest.importorskip("tagseg.refine._pamr_triton", reason="Triton is not on every platform")
pytestmark = pytest.mark.gpu


def refine_on_device(image: Tensor, masks: Tensor, present: Tensor | None, **settings: Any) -> Tensor:
    tensors = [tensor if tensor is None else tensor.to(KERNEL_DEVICE) for tensor in (image, masks, present)]
    refined: Tensor = _pamr_triton.refine(*tensors, **settings)
    return refined.cpu()


class TestPamrTriton(PamrBattery):
    @pytest.fixture
    def refine(self) -> Refine:
        return refine_on_device


@pytest.mark.parametrize("partial", [False, True])
def test_iteration_is_one_kernel_launch(partial: bool) -> None:
    """Stated in docs/performance.md; affinities and packing are one launch each."""
    image, masks, present = sample()
    kernels = [_pamr_triton._pack, _pamr_triton._affinities, _pamr_triton._weighted_mean]
    launches: list[object] = []
    for kernel in kernels:
        kernel.pre_run_hooks.append(lambda *_, **__: launches.append(None))
    try:
        refine_on_device(image, masks, present if partial else None, **SETTINGS[0])
    finally:
        for kernel in kernels:
            kernel.pre_run_hooks.pop()
    assert len(launches) == SETTINGS[0]["iterations"] + 2


@needs_gpu
def test_preparation_does_not_synchronize_with_the_gpu() -> None:
    masks, present = torch.rand(2, 4, 5, 5).cuda(), torch.ones(2, 4).cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        _pamr_triton._planes_to_refine(masks, present)
        _pamr_triton._planes_to_refine(masks, None)
    finally:
        torch.cuda.set_sync_debug_mode("default")
