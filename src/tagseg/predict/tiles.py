"""Large images in overlapping tiles, whose results fade into each other so that no seam shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

OVERLAP = 128
SMALLEST_TILE = 2 * OVERLAP
Span = tuple[int, int]  # first pixel, and the one after the last
Mask = NDArray[np.uint8] | NDArray[np.uint16]


@dataclass(frozen=True)
class Grid:
    """The tiles of one image: every row of tiles has the same columns."""

    rows: tuple[Span, ...]
    columns: tuple[Span, ...]

    @property
    def size(self) -> tuple[int, int]:
        """The image's height and width."""
        return self.rows[-1][1], self.columns[-1][1]

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    def __iter__(self) -> Iterator[tuple[Span, Span]]:
        return ((row, column) for row in self.rows for column in self.columns)


def plan_tiles(height: int, width: int, max_pixels: int) -> Grid:
    """Cut an image into as few tiles of at most `max_pixels` as overlap by 128 pixels; one if it is small enough.

    No side of a tile is cut below 256 pixels, whatever `max_pixels` says.
    """
    side = max(SMALLEST_TILE, int(max_pixels**0.5))
    tile_height = min(height, side)
    tile_width = min(width, max(side, max_pixels // tile_height))
    tile_height = min(height, max(side, max_pixels // tile_width))
    return Grid(_cut(height, tile_height), _cut(width, tile_width))


def _cut(length: int, longest: int) -> tuple[Span, ...]:
    if length <= longest:
        return ((0, length),)
    count = ceil((length - OVERLAP) / (longest - OVERLAP))
    tile = ceil((length + (count - 1) * OVERLAP) / count)
    starts = [i * (length - tile) // (count - 1) for i in range(count)]
    return tuple((start, start + tile) for start in starts)


def ramps(spans: Sequence[Span]) -> list[Tensor]:
    """The weight of every pixel in each of the tiles along one side: it fades towards a neighbour, and all sum to 1."""
    length = spans[-1][1]
    weights = torch.zeros(len(spans), length)
    for row, (start, end) in zip(weights, spans, strict=True):
        place = torch.arange(start, end) + 0.5
        from_start = (place - start) / OVERLAP if start > 0 else torch.ones(end - start)
        from_end = (end - place) / OVERLAP if end < length else torch.ones(end - start)
        row[start:end] = torch.minimum(from_start, from_end).clamp(max=1)
    weights /= weights.sum(0)
    return [row[start:end] for row, (start, end) in zip(weights, spans, strict=True)]


class Canvas:
    """Where tiles are put together, in reading order. Only one row of tiles is ever held in floating point.

    Attributes:
        masks: the value of the strongest plane in each pixel, [B, H, W].
        planes: the whole planes, [B, P, H, W], if they are kept.

    Args:
        grid: the tiles; each is of several images of one size.
        values: the mask value of each plane that will come, background first, [B, P], on the planes' device.
        dtype: the masks' type.
        keep_planes: keep the whole planes too.
    """

    def __init__(self, grid: Grid, values: Tensor, *, dtype: type, keep_planes: bool) -> None:
        self.masks: Mask = np.zeros((len(values), *grid.size), dtype=dtype)
        self.planes = torch.zeros(*values.shape, *grid.size) if keep_planes else None
        self._values = values.to(torch.uint8 if dtype == np.uint8 else torch.int32)
        self._grid = grid
        self._tiles = 0
        if len(grid) > 1:
            self._row_weights = [weights.to(values.device) for weights in ramps(grid.rows)]
            self._column_weights = [weights.to(values.device) for weights in ramps(grid.columns)]
            self._strip = torch.zeros(*values.shape, 0, grid.size[1], device=values.device)

    def add(self, planes: Tensor) -> None:
        """Put the next tile, [B, P, h, w], in its place."""
        if len(self._grid) == 1:  # nothing to fade into
            self._keep(planes, 0, self._grid.size[0])
            return
        row, column = divmod(self._tiles, len(self._grid.columns))
        self._tiles += 1
        (top, bottom), (left, right) = self._grid.rows[row], self._grid.columns[column]
        if column == 0:  # a new row begins with what the last one left in the overlap
            missing = bottom - top - self._strip.shape[2]
            empty = self._strip.new_zeros(*planes.shape[:2], missing, self._strip.shape[3])
            self._strip = torch.cat([self._strip, empty], 2)
        self._strip[..., left:right] += planes * self._row_weights[row][:, None] * self._column_weights[column]
        if column == len(self._grid.columns) - 1:
            last = row == len(self._grid.rows) - 1
            done = (bottom if last else self._grid.rows[row + 1][0]) - top
            self._keep(self._strip[:, :, :done], top, top + done)
            self._strip = self._strip[:, :, done:].clone()

    def _keep(self, planes: Tensor, top: int, bottom: int) -> None:
        strongest = planes.max(1).indices  # argmax takes ten times as long on a CPU
        values = self._values.gather(1, strongest.flatten(1)).view_as(strongest)
        self.masks[:, top:bottom] = values.cpu().numpy()
        if self.planes is not None:
            self.planes[:, :, top:bottom] = planes.cpu()
