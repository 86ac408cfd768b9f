"""The fast paths of PAMR give what the plain one gives, and stay within their bounds of memory and work."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tagseg
from tagseg.refine import _pamr_cpu, _pamr_plain
from tests.conftest import KERNEL_DEVICE, Reference
from tests.memory import PeakBytes

_pamr_triton = pytest.importorskip("tagseg.refine._pamr_triton", reason="Triton is not on every platform")

SETTINGS: list[dict[str, Any]] = [
    {"dilations": (1, 2, 4, 8, 12, 24), "iterations": 2, "kernel": "reference"},
    {"dilations": (3, 1), "iterations": 3, "kernel": "paper"},
    {"dilations": (1,), "iterations": 1, "kernel": "reference"},
]
PATHS = {"cpu": (_pamr_cpu.refine, "cpu"), "triton": (_pamr_triton.refine, KERNEL_DEVICE)}
every_path = pytest.mark.parametrize("path", PATHS)


def scene(channels: int = 3, classes: int = 6, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """An image that is flat in one half, masks, and which of them are present: one, none and five of six."""
    image, masks = torch.rand(3, channels, 13, 11), torch.randn(3, classes, 13, 11).softmax(1)
    image[..., :6] = 0.3
    present = torch.zeros(3, classes)
    present[0, 1] = 1
    present[2, 1:] = 1
    return image.to(dtype), masks.to(dtype), present


def on(device: str, *tensors: Tensor | None) -> list[Tensor | None]:
    return [tensor if tensor is None else tensor.to(device) for tensor in tensors]


def refine_by(path: str, image: Tensor, masks: Tensor, present: Tensor | None, **settings: Any) -> Tensor:
    function, device = PATHS[path]
    refined: Tensor = function(*on(device, image, masks, present), **settings)
    return refined.cpu()


@every_path
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("ragged", [False, True])
def test_same_as_the_plain_path(path: str, settings: dict[str, Any], ragged: bool) -> None:
    image, masks, present = scene()
    chosen = present if ragged else None
    expected = _pamr_plain.refine(image, masks, chosen, **settings)
    torch.testing.assert_close(refine_by(path, image, masks, chosen, **settings), expected, atol=1e-6, rtol=0)


@every_path
@pytest.mark.parametrize("channels", [1, 4])
def test_any_number_of_channels(path: str, channels: int) -> None:
    image, masks, _ = scene(channels)
    expected = _pamr_plain.refine(image, masks, None, **SETTINGS[1])
    torch.testing.assert_close(refine_by(path, image, masks, None, **SETTINGS[1]), expected, atol=1e-6, rtol=0)


@every_path
def test_half_precision_sums_in_single(path: str) -> None:
    image, masks, present = scene(dtype=torch.float16)
    refined = refine_by(path, image, masks, present, **SETTINGS[0])
    expected = _pamr_plain.refine(image.float(), masks.float(), present, **SETTINGS[0])
    assert refined.dtype == torch.float16
    torch.testing.assert_close(refined, expected.half(), atol=1e-3, rtol=0)


@every_path
def test_any_memory_layout(path: str) -> None:
    image, masks, present = scene()
    expected = refine_by(path, image, masks, present, **SETTINGS[1])
    image, masks = image.to(memory_format=torch.channels_last), masks.to(memory_format=torch.channels_last)
    assert torch.equal(refine_by(path, image, masks, present, **SETTINGS[1]), expected)


@every_path
def test_golden_values(path: str, reference: Reference) -> None:
    golden = reference("pamr.npz")
    enlarged = tagseg.pamr(golden["image"], golden["masks"], iterations=0)
    refined = refine_by(path, golden["image"], enlarged, None, dilations=(1,), iterations=1, kernel="reference")
    torch.testing.assert_close(refined, golden["out_d1_it1"], atol=1e-5, rtol=1e-4)


@every_path
def test_absent_masks_are_never_read(path: str) -> None:
    """A mask that is not to be refined does not touch the others, whatever is in it."""
    image, masks, present = scene()
    expected = refine_by(path, image, masks, present, **SETTINGS[0])
    masks[present == 0] = torch.nan
    refined = refine_by(path, image, masks, present, **SETTINGS[0])
    assert torch.equal(refined[present == 1], expected[present == 1])
    assert refined[present == 0].isnan().all()


class Operations(TorchDispatchMode):
    """Within `with Operations() as seen`, the names of all operations and the elements that sparse products wrote."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.product_elements = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.names.append(func.__name__.split(".")[0])
        if "embedding_bag" in self.names[-1]:
            self.product_elements += result[0].numel()
        return result


def test_only_present_masks_cost_on_a_cpu() -> None:
    image, masks = torch.rand(2, 3, 9, 9), torch.rand(2, 21, 9, 9)
    present = torch.zeros(2, 21)
    present[:, 0] = present[0, 5] = present[0, 7] = 1
    with Operations() as seen:
        tagseg.pamr(image, masks, present=present, iterations=10)
    assert seen.product_elements == 2 * 8 * 9 * 9 * 10  # rows of 8: whole vector registers


def test_a_tenth_of_the_materialising_forms_memory() -> None:
    """All neighbours of all masks are 48 times the masks, and their products with the affinities as much again."""
    image, masks = torch.rand(16, 3, 81, 81), torch.rand(16, 21, 81, 81)
    with PeakBytes() as memory:
        tagseg.pamr(image, masks, iterations=1)
    assert memory.peak <= 0.1 * 48 * masks.numel() * 4


def test_holds_affinities_their_places_and_little_more_on_a_cpu() -> None:
    image, masks = torch.rand(1, 3, 150, 200), torch.rand(1, 21, 150, 200)
    with PeakBytes() as memory:
        tagseg.pamr(image, masks, iterations=2)
    assert memory.peak <= (2 * 48 + 4 * 21) * 150 * 200 * 4


def test_the_plain_path_never_holds_all_neighbours() -> None:
    """Double precision takes the path that gradients take."""
    image, masks = torch.rand(1, 3, 250, 300).double(), torch.rand(1, 21, 250, 300).double()
    with PeakBytes() as memory:
        tagseg.pamr(image, masks, iterations=1)
    assert memory.peak <= (4 * 21 + 48) * 250 * 300 * 8


def test_prepares_kernels_without_waiting_for_the_gpu() -> None:
    """What a GPU has to be asked for stalls training; these operations ask."""
    masks, present = torch.rand(2, 4, 5, 5), torch.ones(2, 4)
    with Operations() as seen:
        _pamr_triton._planes_to_refine(masks, present)
        _pamr_triton._planes_to_refine(masks, None)
    assert not {"_local_scalar_dense", "nonzero", "masked_select", "index"} & set(seen.names)
    assert len(seen.names) <= 8


@pytest.mark.parametrize("ragged", [False, True])
def test_launches_one_kernel_for_each_iteration_and_two_before(ragged: bool) -> None:
    """However many masks there are: launches cost as much as small kernels."""
    image, masks, present = scene()
    kernels = [_pamr_triton._pack, _pamr_triton._affinities, _pamr_triton._mean_of_neighbours]
    launches: list[object] = []
    for kernel in kernels:
        kernel.pre_run_hooks.append(lambda *_, **__: launches.append(None))
    try:
        refine_by("triton", image, masks, present if ragged else None, **SETTINGS[0])
    finally:
        for kernel in kernels:
            kernel.pre_run_hooks.pop()
    assert len(launches) == SETTINGS[0]["iterations"] + 2
