"""Sparse matrices that multiply all channels of a dense matrix at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg._device import triton_available

# A GPU finishes a product with its longest row, and thousands of pixels of a flat sky share one lattice point. There a
# row is summed in segments of at most this many entries.
_SEGMENT = 64


@dataclass(frozen=True)
class EllMatrix:
    """Sparse matrix with the same number of entries in every row (ELLPACK format).

    Attributes:
        columns: Column of every entry, int32 [rows, entries].
        weights: Value of every entry, [rows, entries].
    """

    columns: Tensor
    weights: Tensor

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Multiply with `dense` [columns, channels]."""
        if triton_available(dense):
            from tagseg.refine._crf_triton import ell_product

            return ell_product(self.columns, self.weights, dense)
        # An embedding bag is a weighted sum of table rows, and torch has a fast one on every device.
        return F.embedding_bag(self.columns, dense, mode="sum", per_sample_weights=self.weights)

    def rows(self, rows: slice) -> "EllMatrix":
        """Return a range of rows, as views."""
        return EllMatrix(self.columns[rows], self.weights[rows])


@dataclass(frozen=True)
class CsrMatrix:
    """Sparse matrix stored row by row (compressed sparse rows).

    Attributes:
        columns: Column of every entry, row after row, int32 [entries].
        starts: Position of every row's first entry, int32 [rows].
        weights: Value of every entry, [entries].
        segments: Segments of the rows from `segment_rows`, for the Triton kernels.
    """

    columns: Tensor
    starts: Tensor
    weights: Tensor
    segments: tuple[Tensor, Tensor] | None = None

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Multiply with `dense` [columns, channels]."""
        if self.segments:
            from tagseg.refine._crf_triton import csr_product

            return csr_product(self, dense)
        return F.embedding_bag(self.columns, dense, self.starts, mode="sum", per_sample_weights=self.weights)

    def split(self, spans: Sequence[slice]) -> list[tuple[slice, "CsrMatrix"]]:
        """Split into ranges of rows; a row belongs to the range in which it starts.

        Args:
            spans: Consecutive ranges of entries.

        Returns:
            The rows of each range that has any, and the matrix of these rows.
        """
        limits = torch.tensor([span.start for span in spans], dtype=self.starts.dtype)
        first_rows = torch.searchsorted(self.starts, limits).unique()
        bounds = [*first_rows[first_rows < len(self.starts)].tolist(), len(self.starts)]
        positions = [*self.starts[bounds[:-1]].tolist(), len(self.columns)]
        parts = []
        for part in range(len(bounds) - 1):
            rows, span = slice(bounds[part], bounds[part + 1]), slice(positions[part], positions[part + 1])
            matrix = CsrMatrix(self.columns[span], self.starts[rows] - span.start, self.weights[span])
            parts.append((rows, matrix))
        return parts

    def stack(self, other: "CsrMatrix") -> "CsrMatrix":
        """Return the matrix with the rows of this one followed by those of another."""
        entries = len(self.columns)
        columns = torch.cat([self.columns, other.columns])
        starts = torch.cat([self.starts, other.starts + entries])
        segments = None
        if self.segments and other.segments:
            (cuts, firsts), (other_cuts, other_firsts) = self.segments, other.segments
            segments = torch.cat([cuts, other_cuts + entries]), torch.cat([firsts, other_firsts + len(cuts)])
        return CsrMatrix(columns, starts, torch.cat([self.weights, other.weights]), segments)

    def block_diagonal(self, copies: int, columns: int) -> "CsrMatrix":
        """Return the block-diagonal matrix of several copies of this one.

        Args:
            copies: Number of blocks.
            columns: Number of columns of each block.
        """
        entries = len(self.columns)
        segments = None
        if self.segments:
            cuts, firsts = self.segments
            segments = repeat_with_offset(cuts, copies, entries), repeat_with_offset(firsts, copies, len(cuts))
        return CsrMatrix(
            repeat_with_offset(self.columns, copies, columns),
            repeat_with_offset(self.starts, copies, entries),
            self.weights.repeat(copies),
            segments,
        )


def repeat_with_offset(indices: Tensor, copies: int, offset: int, *, dim: int = 0) -> Tensor:
    """Repeat indices along a dimension and add `offset` more to each copy than to the previous one."""
    offsets = torch.arange(0, copies * offset, offset, device=indices.device, dtype=indices.dtype)
    repeated = indices.unsqueeze(dim) + offsets.view(-1, *[1] * (indices.dim() - dim))
    return repeated.flatten(dim, dim + 1)


def segment_rows(starts: Tensor, entries: int) -> tuple[Tensor, Tensor]:
    """Divide the rows of a `CsrMatrix` into segments of at most 64 entries.

    The entries are cut before every row and after every 64 entries. Where both cuts coincide one segment is empty, so
    that the number of segments is known without synchronizing with the device.

    Args:
        starts: Position of every row's first entry, int32 [rows].
        entries: Number of entries of all rows.

    Returns:
        The position of every segment's first entry, and the index of every row's first segment, both int32.
    """
    cuts = torch.arange(0, entries, _SEGMENT, device=starts.device, dtype=torch.int32)
    rows = torch.arange(len(starts), device=starts.device, dtype=torch.int32)
    return torch.cat([starts, cuts]).sort().values, rows.add_((starts + (_SEGMENT - 1)) // _SEGMENT)
