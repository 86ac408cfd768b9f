from dataclasses import replace

import torch

from tagseg.refine._sparse import CsrMatrix, EllMatrix, segment_rows


def uneven_rows(columns: int) -> CsrMatrix:
    """Rows of 1 to 300 entries; some end where a segment of 64 ends."""
    lengths = torch.tensor([1, 63, 64, 300, 2, 20, 128, 7])
    entries = int(lengths.sum())
    starts = (lengths.cumsum(0) - lengths).int()
    return CsrMatrix(torch.randint(0, columns, (entries,), dtype=torch.int32), starts, torch.rand(entries))


def to_dense(matrix: CsrMatrix, columns: int) -> torch.Tensor:
    """Convert a sparse matrix to a dense one."""
    return matrix @ torch.eye(columns)


def test_products_equal_dense_products() -> None:
    dense = torch.randn(50, 4)
    csr = uneven_rows(50)
    torch.testing.assert_close(csr @ dense, to_dense(csr, 50) @ dense)
    ell = EllMatrix(torch.randint(0, 50, (9, 3), dtype=torch.int32), torch.rand(9, 3))
    torch.testing.assert_close(ell @ dense, (ell @ torch.eye(50)) @ dense)
    assert torch.equal(ell.rows(slice(2, 5)) @ dense, (ell @ dense)[2:5])


def test_split_keeps_every_row_whole() -> None:
    matrix, dense = uneven_rows(50), torch.randn(50, 4)
    for size in (1, 64, 100, 1000):
        spans = [slice(start, start + size) for start in range(0, len(matrix.columns), size)]
        parts = matrix.split(spans)
        assert [row for rows, _ in parts for row in range(rows.start, rows.stop)] == list(range(8))
        assert torch.equal(torch.cat([part @ dense for _, part in parts]), matrix @ dense)


def test_segments_have_at_most_64_entries() -> None:
    matrix = uneven_rows(50)
    entries = len(matrix.columns)
    segments, first_segments = segment_rows(matrix.starts, entries)
    assert torch.cat([segments, torch.tensor([entries])]).diff().max() <= 64
    assert torch.equal(segments[first_segments.long()], matrix.starts)


def test_block_diagonal_equals_stacked_copies() -> None:
    matrix = uneven_rows(50)
    matrix = replace(matrix, segments=segment_rows(matrix.starts, len(matrix.columns)))
    repeated = matrix.block_diagonal(3, 50)
    copies = [replace(matrix, columns=matrix.columns + 50 * copy) for copy in range(3)]
    expected = copies[0].stack(copies[1]).stack(copies[2])
    for field in ("columns", "starts", "weights"):
        assert torch.equal(getattr(repeated, field), getattr(expected, field)), field
    assert repeated.segments is not None
    assert expected.segments is not None
    assert all(torch.equal(*pair) for pair in zip(repeated.segments, expected.segments, strict=True))
