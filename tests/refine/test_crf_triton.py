"""The Triton kernels of the dense CRF equal the plain operators."""

import pytest
import torch
from torch import Tensor

from tagseg import dense_crf
from tagseg.refine._mean_field import group_classes, mean_field
from tagseg.refine._parallel import Workers
from tagseg.refine._sparse import CsrMatrix, EllMatrix, segment_rows
from tagseg.refine.crf import _bilateral, _gaussian, _Settings
from tagseg.refine.lattice import Lattice, _vertices, add, key_table, repeat
from tests.conftest import KERNEL_DEVICE
from tests.refine.test_sparse import uneven_rows

kernels = pytest.importorskip("tagseg.refine._crf_triton", reason="Triton is not on every platform")
pytestmark = pytest.mark.gpu
every_number_of_channels = pytest.mark.parametrize("channels", [1, 4, 32])


def on_device(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(KERNEL_DEVICE) for tensor in tensors]


def segmented_on_device(matrix: CsrMatrix) -> CsrMatrix:
    cuts, firsts = on_device(*segment_rows(matrix.starts, len(matrix.columns)))
    columns, starts, weights = on_device(matrix.columns, matrix.starts, matrix.weights)
    return CsrMatrix(columns, starts, weights, (cuts, firsts))


@pytest.mark.parametrize("dims", [2, 5])
@pytest.mark.parametrize("deviation", [1.0, 3.0, 80.0, 0.3])
def test_vertices_are_bit_identical(dims: int, deviation: float) -> None:
    """Integers, many of which lie exactly between two lattice points, with 32-bit and 64-bit keys."""
    levels = torch.randint(0, 256, (dims, 2 * 333)).float()
    features = levels / torch.tensor(deviation)
    table = key_table([(0, 255 / deviation)] * dims, 2, torch.device("cpu"))
    expected = _vertices(features, table, 2, Workers())
    actual = kernels.simplex_vertices(*on_device(features, table), 2)
    for kernel_result, plain_result in zip(actual, expected, strict=True):
        assert torch.equal(kernel_result.cpu(), plain_result)


@every_number_of_channels
def test_ell_product(channels: int) -> None:
    rows = 1100 // channels
    matrix = EllMatrix(torch.randint(0, 50, (rows, 3), dtype=torch.int32), torch.rand(rows, 3))
    dense = torch.randn(50, channels)
    product = kernels.ell_product(*on_device(matrix.columns, matrix.weights, dense))
    torch.testing.assert_close(product.cpu(), matrix @ dense)


@every_number_of_channels
def test_csr_product(channels: int) -> None:
    matrix, dense = uneven_rows(50), torch.randn(50, channels)
    product = kernels.csr_product(segmented_on_device(matrix), dense.to(KERNEL_DEVICE))
    torch.testing.assert_close(product.cpu(), matrix @ dense)


def test_csr_product_of_stacked_matrices() -> None:
    upper, lower = uneven_rows(50), uneven_rows(50)
    dense = torch.randn(50, 4)
    stacked = segmented_on_device(upper).stack(segmented_on_device(lower))
    product = kernels.csr_product(stacked, dense.to(KERNEL_DEVICE))
    torch.testing.assert_close(product.cpu(), torch.cat([upper @ dense, lower @ dense]))


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_mean_field(iterations: int) -> None:
    """The second of two images has fewer groups, one of which has three classes."""
    images = torch.randint(0, 256, (2, 3, 12, 15), dtype=torch.uint8)
    settings = _Settings(iterations, 3.0, 3.0, 80.0, 13.0, 10.0, 1e-5)
    gaussian = _gaussian.__wrapped__(12, 15, 3.0, 3.0, torch.device("cpu"), 0)
    lattice = add(repeat(gaussian, 2), _bilateral(images, settings, Workers()))
    probs, present = torch.rand(2, 4, 12 * 15), torch.ones(2, 4, dtype=torch.bool)
    occurs = torch.tensor([[True] * 4, [True, False, False, False]])
    probs[~occurs] = 0
    groups = group_classes(occurs, present, torch.device("cpu"), power_of_two=True)
    expected = mean_field(lattice, probs, groups, clip=1e-5, iterations=iterations)

    lattice_on_device = Lattice(
        segmented_on_device(lattice.splat),
        EllMatrix(*on_device(lattice.blurs.columns, lattice.blurs.weights)),
        EllMatrix(*on_device(lattice.slice.columns, lattice.slice.weights)),
    )
    groups = group_classes(occurs, present, torch.device(KERNEL_DEVICE), power_of_two=True)
    q = kernels.mean_field(lattice_on_device, *on_device(probs), groups, clip=1e-5, iterations=iterations)
    torch.testing.assert_close(q.cpu(), expected)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the other tests of the CRF run on the GPU")
def test_all_kernels_together_equal_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(0, 256, (2, 3, 6, 7), dtype=torch.uint8)
    probs, present = torch.rand(2, 3, 6, 7), torch.tensor([[True, True, True], [True, False, True]])
    expected = dense_crf(images, probs, present=present)
    launches: dict[str, int] = {}
    for name in ("_ell_product", "_csr_product", "_simplex_vertices"):
        launches[name] = 0

        def count(*_: object, name: str = name, **__: object) -> None:
            launches[name] += 1

        monkeypatch.setattr(getattr(kernels, name), "pre_run_hooks", [count])
    for module in ("crf", "lattice", "_sparse"):
        monkeypatch.setattr(f"tagseg.refine.{module}.triton_available", lambda _: True)
    _gaussian.cache_clear()
    try:
        torch.testing.assert_close(dense_crf(images, probs, present=present), expected, atol=1e-4, rtol=0)
    finally:
        _gaussian.cache_clear()
    # docs/performance.md states one kernel for the vertices of a lattice and two axes per blur step: two lattices are
    # built and normalized by one filter each, then there are ten iterations.
    assert launches == {"_simplex_vertices": 2, "_csr_product": 2 * 12, "_ell_product": 4 * 12}
