"""The GPU's kernels, beside the plain operations that they replace."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tagseg import dense_crf
from tagseg.refine import _sparse as sparse, crf, lattice
from tagseg.refine._numbering import numbering_table
from tagseg.refine._sparse import EqualRows, SparseRows, cut_into_pieces
from tagseg.refine.crf import _bilateral, _gaussian, _shares
from tagseg.refine.lattice import Lattice, _corners, add, repeat
from tests.conftest import KERNEL_DEVICE

kernels = pytest.importorskip("tagseg.refine._sparse_triton", reason="Triton is not on every platform")
corner_kernel = pytest.importorskip("tagseg.refine._corners_triton", reason="Triton is not on every platform")
every_number_of_channels = pytest.mark.parametrize("channels", [1, 4, 32])


def on_device(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(KERNEL_DEVICE) for tensor in tensors]


def equal_rows(rows: int, entries: int, columns: int) -> EqualRows:
    return EqualRows(torch.randint(0, columns, (rows, entries), dtype=torch.int32), torch.rand(rows, entries))


def skewed_rows(columns: int) -> SparseRows:
    """Rows of 1 to 300 entries; some end where a piece of 64 ends."""
    lengths = torch.tensor([1, 63, 64, 300, 2, 20, 128, 7])
    entries = int(lengths.sum())
    starts = (lengths.cumsum(0) - lengths).int()
    return SparseRows(torch.randint(0, columns, (entries,), dtype=torch.int32), starts, torch.rand(entries))


def cut(matrix: SparseRows) -> tuple[Tensor, Tensor]:
    return cut_into_pieces(matrix.starts, len(matrix.columns))


@pytest.mark.parametrize("dims", [2, 5])
@pytest.mark.parametrize("reach", [1.0, 3.0, 80.0, 0.3])
def test_corners_have_the_same_bits(dims: int, reach: float) -> None:
    """Whole numbers as pixels have them, of which many lie in the middle between two points; in 32 and in 64 bits."""
    levels = torch.randint(0, 256, (dims, 2 * 333)).float()
    features = levels / torch.tensor(reach)
    table = numbering_table([(0, 255 / reach)] * dims, 2, torch.device("cpu"))
    expected = _corners(features, table, 2)
    found = corner_kernel.corners(*on_device(features, table), 2)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.cpu(), other)


@every_number_of_channels
def test_product_with_equal_rows(channels: int) -> None:
    matrix, dense = equal_rows(1100 // channels, 3, 50), torch.randn(50, channels)
    product = kernels.equal_rows_product(*on_device(matrix.columns, matrix.weights, dense))
    torch.testing.assert_close(product.cpu(), matrix @ dense)


@every_number_of_channels
def test_product_with_rows_in_pieces(channels: int) -> None:
    matrix, dense = skewed_rows(50), torch.randn(50, channels)
    pieces, first_pieces = cut(matrix)
    sums = kernels.weighted_sums(*on_device(matrix.columns, pieces, matrix.weights, dense))
    product = kernels.sums_of_rows(first_pieces.to(KERNEL_DEVICE), sums)
    torch.testing.assert_close(product.cpu(), matrix @ dense)


def test_no_piece_is_long() -> None:
    """A GPU waits for the longest."""
    matrix = skewed_rows(50)
    ends = torch.tensor([len(matrix.columns)])
    pieces, first_pieces = cut(matrix)
    assert torch.cat([pieces, ends]).diff().max() <= 64
    assert torch.equal(pieces[first_pieces.long()], matrix.starts)


def test_pieces_of_a_matrix_above_another() -> None:
    matrices = [skewed_rows(50) for _ in range(2)]
    upper, lower = (replace(matrix, pieces=cut(matrix)) for matrix in matrices)
    both = upper.above(lower)
    assert both.pieces is not None
    pieces, first_pieces = both.pieces
    assert torch.equal(pieces[first_pieces.long()], both.starts)
    dense = torch.randn(50, 4)
    sums = kernels.weighted_sums(*on_device(both.columns, pieces, both.weights, dense))
    product = kernels.sums_of_rows(first_pieces.to(KERNEL_DEVICE), sums)
    torch.testing.assert_close(product.cpu(), torch.cat([matrix @ dense for matrix in matrices]))


def test_pieces_of_copies_along_the_diagonal() -> None:
    """As if each copy were cut and put below the one before."""
    matrix = skewed_rows(50)
    whole = replace(matrix, pieces=cut(matrix))
    copies = whole.repeated(3, 50)
    below = [replace(whole, columns=whole.columns + 50 * n) for n in range(3)]
    expected = below[0].above(below[1]).above(below[2])
    for field in ("columns", "starts", "weights"):
        assert torch.equal(getattr(copies, field), getattr(expected, field)), field
    assert copies.pieces is not None
    assert expected.pieces is not None
    assert all(torch.equal(*pair) for pair in zip(copies.pieces, expected.pieces, strict=True))


@pytest.mark.parametrize("iterations", [0, 1, 3])
@pytest.mark.parametrize("slots", [1, 4])
def test_mean_field(slots: int, iterations: int) -> None:
    """The second of two images has fewer classes than slots, and a slot that stands for three classes."""
    images = torch.randint(0, 256, (2, 3, 12, 15), dtype=torch.uint8)
    near = _gaussian.__wrapped__(12, 15, 3.0, 3.0, torch.device("cpu"), 0)
    both = add(repeat(near, 2), _bilateral(images, 80.0, 13.0, 10.0))
    scores, copies = torch.randn(2, 12 * 15, slots), torch.ones(2, slots)
    if slots > 1:
        scores[1, :, 2:] = -torch.inf
        copies[1, 2:] = 0
        copies[1, 1] = 3
    expected = _shares(scores, copies)
    start = expected.clone()
    for _ in range(iterations):
        expected = _shares(both.filter(expected.flatten(0, 1)).view_as(scores) + scores, copies)

    splat, blurs, read = both.splat, both.blurs, both.slice
    columns, starts, weights, pieces, first_pieces = on_device(splat.columns, splat.starts, splat.weights, *cut(splat))
    there = Lattice(
        SparseRows(columns, starts, weights, (pieces, first_pieces)),
        EqualRows(*on_device(blurs.columns, blurs.weights)),
        EqualRows(*on_device(read.columns, read.weights)),
    )
    scores, copies, shares = on_device(scores, copies, start)
    kernels.mean_field(there, scores, copies, shares, iterations)
    torch.testing.assert_close(shares.cpu(), expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the other tests of the CRF run there")
def test_a_gpus_way_gives_what_a_cpu_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels together, as they are used, on images of which one lacks a class."""
    images = torch.randint(0, 256, (2, 3, 12, 15), dtype=torch.uint8)
    probs, present = torch.rand(2, 3, 12, 15), torch.tensor([[True, True, True], [True, False, True]])
    expected = dense_crf(images, probs, present=present)
    launches: list[object] = []
    for kernel in (kernels._equal_rows, kernels._ragged_rows, corner_kernel._corners):
        monkeypatch.setattr(kernel, "pre_run_hooks", [lambda *_, **__: launches.append(None)])
    for module in (crf, lattice, sparse):
        monkeypatch.setattr(module, "triton_runs", lambda _: True)
    _gaussian.cache_clear()
    try:
        torch.testing.assert_close(dense_crf(images, probs, present=present), expected, atol=1e-4, rtol=0)
    finally:
        _gaussian.cache_clear()
    # Two lattices, of which each finds its corners and is normalised by a filter; then ten iterations.
    assert len(launches) == 2 * (1 + 6) + 10 * 6
