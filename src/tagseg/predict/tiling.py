"""Tiling: large images in overlapping tiles whose masks are blended, so that no seam is visible."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

OVERLAP = 128
SMALLEST_TILE = 2 * OVERLAP
Span = tuple[int, int]  # first pixel, and the one after the last


@dataclass(frozen=True)
class TileGrid:
    """The tiles of an image: every row of tiles has the same columns."""

    rows: tuple[Span, ...]
    columns: tuple[Span, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self.rows[-1][1], self.columns[-1][1]

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    def __iter__(self) -> Iterator[tuple[Span, Span]]:
        return ((row, column) for row in self.rows for column in self.columns)


def plan_tiles(height: int, width: int, max_pixels: int) -> TileGrid:
    """Cut an image into as few tiles of at most `max_pixels` as overlap by 128 pixels; one if it is small enough.

    No side of a tile is cut below 256 pixels, whatever `max_pixels` says.
    """
    side = max(SMALLEST_TILE, int(max_pixels**0.5))
    tile_height = min(height, side)
    tile_width = min(width, max(side, max_pixels // tile_height))
    tile_height = min(height, max(side, max_pixels // tile_width))
    return TileGrid(_spans(height, tile_height), _spans(width, tile_width))


def _spans(length: int, longest: int) -> tuple[Span, ...]:
    if length <= longest:
        return ((0, length),)
    count = ceil((length - OVERLAP) / (longest - OVERLAP))
    tile = ceil((length + (count - 1) * OVERLAP) / count)
    starts = [i * (length - tile) // (count - 1) for i in range(count)]
    return tuple((start, start + tile) for start in starts)


def blend_weights(spans: Sequence[Span]) -> list[Tensor]:
    """Weight of every pixel in each of the tiles along one axis: it falls towards a neighbor, and all sum to 1."""
    length = spans[-1][1]
    weights = torch.zeros(len(spans), length)
    for row, (start, end) in zip(weights, spans, strict=True):
        position = torch.arange(start, end) + 0.5
        from_start = (position - start) / OVERLAP if start > 0 else torch.ones(end - start)
        from_end = (end - position) / OVERLAP if end < length else torch.ones(end - start)
        row[start:end] = torch.minimum(from_start, from_end).clamp(max=1)
    weights /= weights.sum(0)
    return [row[start:end] for row, (start, end) in zip(weights, spans, strict=True)]


class TileStitcher:
    """Blend tiles, which come in reading order, into whole rows; only one row of tiles is held."""

    def __init__(self, grid: TileGrid, device: torch.device) -> None:
        self._grid = grid
        self._num_tiles = 0
        self._strip: Tensor | None = None
        if len(grid) > 1:
            self._row_weights = [weights.to(device) for weights in blend_weights(grid.rows)]
            self._column_weights = [weights.to(device) for weights in blend_weights(grid.columns)]

    def add(self, tile: Tensor) -> tuple[int, Tensor] | None:
        """Blend in the next tile, [R, K, h, w].

        Returns:
            After the last tile of a row the rows that no later tile changes: the first one's position, and the rows,
            [R, K, rows, W].
        """
        if len(self._grid) == 1:
            return 0, tile
        row, column = divmod(self._num_tiles, len(self._grid.columns))
        self._num_tiles += 1
        (top, bottom), (left, right) = self._grid.rows[row], self._grid.columns[column]
        if column == 0:  # a new row starts with what the last one left in the overlap
            started = tile.new_zeros(*tile.shape[:2], 0, self._grid.size[1]) if self._strip is None else self._strip
            empty = tile.new_zeros(*tile.shape[:2], bottom - top - started.shape[2], self._grid.size[1])
            self._strip = torch.cat([started, empty], 2)
        assert self._strip is not None
        self._strip[..., left:right] += tile * self._row_weights[row][:, None] * self._column_weights[column]
        if column < len(self._grid.columns) - 1:
            return None
        is_last = row == len(self._grid.rows) - 1
        num_done = (bottom if is_last else self._grid.rows[row + 1][0]) - top
        finished, self._strip = self._strip[:, :, :num_done], self._strip[:, :, num_done:].clone()
        return top, finished
