"""The GPU's kernels, beside the plain operations that they replace."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tagseg.refine._sparse import EqualRows, SparseRows, cut_into_pieces
from tagseg.refine.crf import _shares
from tests.conftest import KERNEL_DEVICE

kernels = pytest.importorskip("tagseg.refine._sparse_triton", reason="Triton is not on every platform")
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
    torch.testing.assert_close(kernels.sums_of_rows(first_pieces.to(KERNEL_DEVICE), sums).cpu(), matrix @ dense)


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
    product = kernels.sums_of_rows(first_pieces.to(KERNEL_DEVICE), sums).cpu()
    torch.testing.assert_close(product, torch.cat([matrix @ dense for matrix in matrices]))


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


@every_number_of_channels
def test_softmax_of_product(channels: int) -> None:
    """The second of two pictures has fewer classes than slots, and a slot that stands for three classes."""
    matrix, dense = equal_rows(70, 9, 50), torch.randn(50, channels)
    scores, copies = torch.randn(2, 35, channels), torch.ones(2, channels)
    if channels > 1:
        scores[1, :, 2:] = -torch.inf
        copies[1, 2:] = 0
        copies[1, 1] = 3
    result = kernels.softmax_of_product(*on_device(matrix.columns, matrix.weights, dense, scores.flatten(0, 1), copies))
    torch.testing.assert_close(result.cpu(), _shares((matrix @ dense).view_as(scores) + scores, copies).flatten(0, 1))
