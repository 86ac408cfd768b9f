"""What a dense CRF costs, counted: operations and what they write, never seconds."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tagseg import dense_crf
from tests.memory import PeakBytes
from tests.refine.test_crf import random_case


class Work(TorchDispatchMode):
    """Counts operations, sorts, of which a lattice takes one, and products with sparse matrices."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.sorts = self.products = self.elements = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__
        self.operations += 1
        self.sorts += name.startswith("sort.")
        if name.startswith("_embedding_bag"):
            self.products += 1
            self.elements += result[0].numel()
        return result


def work_of(height: int, width: int, *, active: int, classes: int, iterations: int = 10, batch: int = 1) -> Work:
    image, probs = random_case(0, height, width, active)
    padded = torch.cat([probs, torch.zeros(classes - active, height, width)])
    images, planes = image.expand(batch, -1, -1, -1), padded.expand(batch, -1, -1, -1)
    work = Work()
    with work:
        dense_crf(images, planes, iterations=iterations)
    return work


def test_work_grows_with_the_classes_that_occur() -> None:
    work_of(30, 40, active=3, classes=3)  # the Gaussian lattice of this size is kept from now on
    three_of_21, three_of_81 = (work_of(30, 40, active=3, classes=classes) for classes in (21, 81))
    all_of_21 = work_of(30, 40, active=21, classes=21)
    assert three_of_21.elements == three_of_81.elements
    assert three_of_21.elements < all_of_21.elements * 4 / 20  # four slots of 21, and what both have in common


def test_an_iteration_is_eight_products() -> None:
    """To the lattice, along its six axes, and back: with both kernels at once."""
    work_of(21, 40, active=3, classes=4)
    few, many = (work_of(21, 40, active=3, classes=4, iterations=iterations) for iterations in (10, 20))
    assert many.products - few.products == 10 * 8


def test_lattices_are_built_once_for_all_iterations_and_the_gaussian_one_once_for_a_size() -> None:
    assert work_of(23, 41, active=2, classes=3).sorts == 2
    assert work_of(23, 41, active=3, classes=3, iterations=20).sorts == 1


def test_a_lattice_is_built_in_few_operations() -> None:
    """To start each takes time, and its result memory."""
    work_of(22, 40, active=3, classes=3)
    assert work_of(22, 40, active=3, classes=3, iterations=0).operations <= 230
    assert work_of(22, 40, active=3, classes=3, iterations=0, batch=16).operations <= 270


@pytest.mark.parametrize(("classes", "iterations"), [(21, 2), (21, 20), (81, 2)])
def test_memory_grows_neither_with_iterations_nor_with_classes_that_do_not_occur(classes: int, iterations: int) -> None:
    image, probs = random_case(1, 60, 80, 3)
    padded = torch.cat([probs, torch.zeros(classes - 3, 60, 80)])
    dense_crf(image, padded, iterations=0)  # the Gaussian lattice of this size is kept from now on
    memory = PeakBytes()
    with memory:
        q = dense_crf(image, padded, iterations=iterations)
    assert memory.peak - q.nbytes < 400 * 60 * 80
