"""From a picture to masks: look at it tile by tile, decide which classes it has, merge and refine their masks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from tagseg.inference.tiles import Canvas, Grid, Mask, Span
from tagseg.inference.views import Look
from tagseg.refine.crf import dense_crf

PREDICTED_TAGS = "predicted-tags"
TRUE_TAGS = "true-tags"

# Scores of classes -> which of them each protocol keeps, counted from 0.
Choose = Callable[[Sequence[float]], Mapping[str, tuple[int, ...]]]

_MOST_VALUES = 2**28  # 1 GiB of small masks; tiles beyond it are looked at a second time


@dataclass(frozen=True)
class Segmented:
    """A picture's masks under one protocol.

    Attributes:
        kept: the classes that were allowed, counted from 0 without the background.
        mask: 0 for the background, k + 1 for class k, [H, W].
        planes: the merged masks of the background and the kept classes, [1 + K, H, W], if they were asked for.
    """

    kept: tuple[int, ...]
    mask: Mask
    planes: Tensor | None


def segment(
    picture: Tensor,
    look_at: Callable[[Tensor], Look],
    grid: Grid,
    choose: Choose,
    *,
    crf: bool,
    keep_planes: bool,
    seen: Look | None = None,
) -> tuple[list[float], dict[str, Segmented]]:
    """Segment one picture under every protocol that `choose` names; the network sees each tile once if memory allows.

    Args:
        picture: RGB, uint8 [3, H, W].
        look_at: shows a picture to the network.
        grid: the picture's tiles; a class's score is its largest over them.
        choose: decides, once the scores are known, which classes are kept; no protocol at all asks for scores alone.
        crf: refine the masks by a dense CRF, tile by tile.
        keep_planes: keep the merged masks besides the mask.
        seen: what the network said of the whole picture, where that is known already.

    Returns:
        The classes' scores, and a result for each protocol.
    """
    remembered: dict[tuple[Span, Span], Look] = {}
    held, best = 0, None
    for tile in grid:
        found = seen or look_at(_crop(picture, tile))
        best = found.scores if best is None else best.maximum(found.scores)
        if held + found.values <= _MOST_VALUES:
            remembered[tile] = found
            held += found.values
    assert best is not None
    scores: list[float] = best.tolist()

    choice = choose(scores)
    if not choice:
        return scores, {}
    classes = sorted({k for kept in choice.values() for k in kept})
    dtype = np.uint8 if len(scores) <= 255 else np.uint16
    # Protocols that keep the same classes share one canvas.
    canvases = {
        kept: Canvas(grid, [0, *(k + 1 for k in kept)], dtype=dtype, keep_planes=keep_planes, device=picture.device)
        for kept in choice.values()
    }
    for tile in grid:
        pixels = _crop(picture, tile)
        merged = (remembered.pop(tile, None) or look_at(pixels)).merge(classes)
        for kept, canvas in canvases.items():
            planes = merged[[0, *(1 + classes.index(k) for k in kept)]]
            canvas.add(dense_crf(pixels, planes) if crf and kept else planes)
    return scores, {name: Segmented(kept, canvases[kept].mask, canvases[kept].planes) for name, kept in choice.items()}


def _crop(picture: Tensor, tile: tuple[Span, Span]) -> Tensor:
    (top, bottom), (left, right) = tile
    return picture[:, top:bottom, left:right]
