"""Sparse matrices that multiply many channels at once: the steps of a filter on a lattice."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._kernels import triton_runs

# The longest row decides when a GPU has ended a product, and thousands of pixels of a flat sky share a lattice point.
# There a row is summed in pieces of at most so many entries.
_PIECE = 64


@dataclass(frozen=True)
class EqualRows:
    """A sparse matrix whose rows all have the same number of entries.

    Attributes:
        columns: the column of every entry, int32 [rows, entries].
        weights: the value of every entry, [rows, entries].
    """

    columns: Tensor
    weights: Tensor

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product with `dense` [columns, channels]: a weighted sum of its rows for each row of this matrix."""
        if triton_runs(dense):
            from tagseg.refine._sparse_triton import equal_rows_product

            return equal_rows_product(self.columns, self.weights, dense)
        # Summing weighted rows of a table is what an embedding bag does, and torch has it on every device.
        return F.embedding_bag(self.columns, dense, mode="sum", per_sample_weights=self.weights)


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix, stored row by row.

    Attributes:
        columns: the column of every entry, row after row, int32 [entries].
        starts: the position of every row's first entry, int32 [rows].
        weights: the value of every entry, [entries].
        pieces: how `cut_into_pieces` cuts the rows, where Triton's kernels compute the products.
    """

    columns: Tensor
    starts: Tensor
    weights: Tensor
    pieces: tuple[Tensor, Tensor] | None = None

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product with `dense` [columns, channels]: a weighted sum of its rows for each row of this matrix."""
        if self.pieces:
            from tagseg.refine._sparse_triton import sums_of_rows, weighted_sums

            pieces, first_pieces = self.pieces
            return sums_of_rows(first_pieces, weighted_sums(self.columns, pieces, self.weights, dense))
        return F.embedding_bag(self.columns, dense, self.starts, mode="sum", per_sample_weights=self.weights)

    def above(self, other: "SparseRows") -> "SparseRows":
        """The matrix with the rows of this one and then those of another."""
        entries = len(self.columns)
        columns = torch.cat([self.columns, other.columns])
        starts = torch.cat([self.starts, other.starts + entries])
        pieces = None
        if self.pieces and other.pieces:
            (cuts, firsts), (other_cuts, other_firsts) = self.pieces, other.pieces
            pieces = torch.cat([cuts, other_cuts + entries]), torch.cat([firsts, other_firsts + len(cuts)])
        return SparseRows(columns, starts, torch.cat([self.weights, other.weights]), pieces)

    def repeated(self, times: int, columns: int) -> "SparseRows":
        """The matrix of so many copies of this one along its diagonal, each of so many columns."""
        entries = len(self.columns)
        pieces = None
        if self.pieces:
            cuts, firsts = self.pieces
            pieces = shifted(cuts, times, entries), shifted(firsts, times, len(cuts))
        return SparseRows(
            shifted(self.columns, times, columns),
            shifted(self.starts, times, entries),
            self.weights.repeat(times),
            pieces,
        )


def shifted(indices: Tensor, times: int, step: int, *, dim: int = 0) -> Tensor:
    """So many copies of indices one after another along a dimension, each larger than the last by a step."""
    shifts = torch.arange(0, times * step, step, device=indices.device, dtype=indices.dtype)
    copies = indices.unsqueeze(dim) + shifts.view(-1, *[1] * (indices.dim() - dim))
    return copies.flatten(dim, dim + 1)


def cut_into_pieces(starts: Tensor, entries: int) -> tuple[Tensor, Tensor]:
    """The position of every piece's first entry, and every row's first piece, both int32.

    The entries are cut before every row and after every 64. Where both fall together one piece is empty, so that the
    number of pieces is known without waiting for the device.

    Args:
        starts: the position of every row's first entry, int32 [rows].
        entries: how many entries all rows have together.
    """
    cuts = torch.arange(0, entries, _PIECE, device=starts.device, dtype=torch.int32)
    rows = torch.arange(len(starts), device=starts.device, dtype=torch.int32)
    return torch.cat([starts, cuts]).sort().values, rows.add_((starts + (_PIECE - 1)) // _PIECE)
