"""Polygons of a region, and the region of polygons: each is exactly the inverse of the other.

Corners are corners of pixels, as in COCO: the pixel in row y and column x reaches from (x, y) to (x + 1, y + 1), and
belongs to a polygon that covers its center by the even-odd rule.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Polygon = NDArray[np.float64]  # corners x, y, [N, 2]
Region = NDArray[np.bool_]  # [H, W]
_CROSSINGS_AT_ONCE = 2**22  # of edges and rows; they bound the memory


def region_polygons(region: Region) -> list[Polygon]:
    """Trace the outlines of a region: one polygon for each part whose pixels are connected by their sides.

    A hole is joined to the outline around it by a bridge, which is passed twice and covers nothing.
    """
    loops = list(_loops(region))
    outlines = [loop for loop in loops if _signed_area(loop) > 0]
    holes: dict[int, list[Polygon]] = defaultdict(list)
    areas = [_signed_area(outline) for outline in outlines]
    boxes = np.array([(*outline.min(0), *outline.max(0)) for outline in outlines])
    for hole in (loop for loop in loops if _signed_area(loop) < 0):
        # The pixel above the upper left corner of a hole belongs to the part around it.
        x, y = min(map(tuple, hole), key=lambda corner: (corner[1], corner[0]))
        around = (boxes[:, 0] <= x) & (boxes[:, 1] < y) & (boxes[:, 2] > x) & (boxes[:, 3] >= y)
        candidates = [index for index in np.flatnonzero(around).tolist() if _covers(outlines[index], x + 0.5, y - 0.5)]
        holes[min(candidates, key=lambda index: areas[index])].append(hole)
    return [_with_holes(outline, holes[index]) for index, outline in enumerate(outlines)]


def fill_polygon(polygon: Polygon, height: int, width: int) -> Region:
    """Pixels whose center a polygon covers, [H, W]; what lies outside the image is left out."""
    region = np.zeros((height, width + 1), bool)
    starts, ends = polygon, np.roll(polygon, -1, axis=0)
    tops, bottoms = (
        np.ceil(function(starts[:, 1], ends[:, 1]).clip(0, height) - 0.5).astype(np.int64)
        for function in (np.minimum, np.maximum)
    )
    first = 0
    totals = np.cumsum(bottoms - tops)
    while first < len(polygon):
        done = totals[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(totals, done + _CROSSINGS_AT_ONCE, side="right")))
        counts = (bottoms - tops)[first:last]
        edges = np.repeat(np.arange(first, last), counts)
        rows = np.arange(len(edges)) - np.repeat(np.cumsum(counts) - counts, counts) + tops[edges]
        slopes = (ends[edges, 0] - starts[edges, 0]) / (ends[edges, 1] - starts[edges, 1])
        columns = starts[edges, 0] + (rows + 0.5 - starts[edges, 1]) * slopes
        columns = np.ceil(columns.clip(0, width) - 0.5).astype(np.int64)
        np.logical_xor.at(region, (rows, columns), True)
        first = last
    return np.logical_xor.accumulate(region, axis=1)[:, :width]


def polygon_area(polygon: Polygon) -> float:
    """Area in pixels; that of holes, which are joined by bridges, is not counted."""
    return abs(_signed_area(polygon))


def _signed_area(polygon: Polygon) -> float:
    """Area of a polygon, positive if it runs clockwise in an image."""
    x, y = (polygon - polygon[:1]).T
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)) / 2


def _loops(region: Region) -> Iterator[Polygon]:
    """Closed outlines with the region on their right: clockwise around parts, and the other way around holes."""
    padded = np.pad(region, 1)
    upper_left, upper_right = padded[:-1, :-1], padded[:-1, 1:]
    lower_left, lower_right = padded[1:, :-1], padded[1:, 1:]
    count = upper_left.astype(np.uint8) + upper_right + lower_left + lower_right
    # Where two pixels touch diagonally, two outlines meet: the corner belongs to two edges of each direction.
    repeats = (count % 2 + 2 * ((count == 2) & (upper_left == lower_right))).astype(np.int64)
    width = region.shape[1] + 1
    by_rows = np.repeat(np.arange(repeats.size), repeats.ravel())
    by_columns = np.repeat(np.arange(repeats.size), repeats.T.ravel())
    by_columns = by_columns % repeats.shape[0] * width + by_columns // repeats.shape[0]
    # The n-th and the (n + 1)-th corner in a row, for even n, are the ends of an edge, whose sides differ.
    lefts, rights = by_rows[0::2], by_rows[1::2]
    goes_right = lower_right.ravel()[lefts]
    uppers, lowers = by_columns[0::2], by_columns[1::2]
    goes_up = lower_right.ravel()[uppers]
    # Corner -> where the edge from it ends, and whether that edge runs right or down.
    horizontal = _edges(np.where(goes_right, lefts, rights), np.where(goes_right, rights, lefts), goes_right)
    vertical = _edges(np.where(goes_up, lowers, uppers), np.where(goes_up, uppers, lowers), ~goes_up)
    while horizontal:
        (start, runs_right), end = horizontal.popitem()
        corners = [start, end]
        while True:
            # At a corner of two outlines, the turn to the right stays at the same pixel.
            runs_down = runs_right if (corners[-1], runs_right) in vertical else not runs_right
            corners.append(vertical.pop((corners[-1], runs_down)))
            runs_right = not runs_down if (corners[-1], not runs_down) in horizontal else runs_down
            if corners[-1] == start and (start, runs_right) not in horizontal:
                break
            corners.append(horizontal.pop((corners[-1], runs_right)))
        loop = np.array(corners[:-1])
        yield np.stack([loop % width, loop // width], axis=1).astype(np.float64)


def _edges(
    starts: NDArray[np.int64], ends: NDArray[np.int64], directions: NDArray[np.bool_]
) -> dict[tuple[int, bool], int]:
    pairs = zip(starts.tolist(), directions.tolist(), strict=True)
    return dict(zip(pairs, ends.tolist(), strict=True))


def _covers(polygon: Polygon, x: float, y: float) -> bool:
    """Whether a polygon covers a point, by the even-odd rule."""
    starts, ends = polygon, np.roll(polygon, -1, axis=0)
    crossed = (starts[:, 1] > y) != (ends[:, 1] > y)  # all edges are horizontal or vertical
    return bool(np.count_nonzero(crossed & (starts[:, 0] > x)) % 2)


def _with_holes(outline: Polygon, holes: list[Polygon]) -> Polygon:
    """Join holes to an outline, each from its first corner to the nearest one."""
    for hole in holes:
        nearest = int(np.abs(outline - hole[0]).sum(1).argmin())
        outline = np.concatenate([outline[: nearest + 1], hole, hole[:1], outline[nearest:]])
    return outline
