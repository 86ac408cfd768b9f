"""From images to masks: look at them tile by tile, decide which classes they have, merge and refine their masks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from tagseg._device import to_device
from tagseg.predict.tiles import Canvas, Grid, Mask, Span
from tagseg.predict.views import Look
from tagseg.refine.crf import dense_crf

PREDICTED_TAGS = "predicted-tags"
TRUE_TAGS = "true-tags"

# Scores of classes -> which of them each protocol keeps, counted from 0.
Choose = Callable[[Sequence[float]], Mapping[str, tuple[int, ...]]]

_MOST_VALUES = 2**28  # 1 GiB of small masks; tiles beyond it are looked at a second time
_MOST_PLANE_VALUES = 2**25  # 128 MiB of masks at full size

_Wanted = tuple[int, tuple[int, ...]]  # which image of the batch, and the classes to keep


@dataclass(frozen=True)
class Segmented:
    """An image's masks under one protocol.

    Attributes:
        kept: the classes that were allowed, counted from 0 without the background.
        mask: 0 for the background, k + 1 for class k, [H, W].
        planes: the merged masks of the background and the kept classes, [1 + K, H, W], if they were asked for.
    """

    kept: tuple[int, ...]
    mask: Mask
    planes: Tensor | None


Found = list[tuple[list[float], dict[str, Segmented]]]  # of each image, the classes' scores and what was asked for


def begin_segment(
    images: Tensor,
    look_at: Callable[[Tensor], Look],
    grid: Grid,
    choosers: Sequence[Choose],
    *,
    crf: bool,
    keep_planes: bool,
) -> Callable[[], Found]:
    """Segment images of one size under every protocol that their choosers name.

    The network sees each tile once if memory allows. Nothing is done image by image: a GPU is asked twice for an
    answer, for the scores and for the masks.

    Args:
        images: RGB, uint8 [B, 3, H, W].
        look_at: shows images to the network.
        grid: the images' tiles; a class's score is its largest over them.
        choosers: decide for each image, once its scores are known, which classes are kept; no protocol at all asks
            for scores alone.
        crf: refine the masks by a dense CRF, tile by tile.
        keep_planes: keep the merged masks besides the mask.

    Returns:
        What waits for the network and gives for each image the classes' scores, and a result for each protocol.
    """
    remembered: dict[tuple[Span, Span], Look] = {}
    held, best = 0, None
    for tile in grid:
        found = look_at(_crop(images, tile))
        best = found.scores if best is None else best.maximum(found.scores)
        if held + found.values <= _MOST_VALUES:
            remembered[tile] = found
            held += found.values
    assert best is not None
    finish = partial(_finish, images, look_at, grid, choosers, remembered, crf=crf, keep_planes=keep_planes)
    return _apart(best, finish) if best.is_cuda else lambda: finish(best)


def _apart(best: Tensor, finish: Callable[[Tensor], Found]) -> Callable[[], Found]:
    """Finish on a stream of its own, and wait for nothing that is begun later."""
    scores = best.to("cpu", non_blocking=True)
    seen = torch.cuda.current_stream(best.device).record_event()

    def wait() -> Found:
        seen.synchronize()
        with torch.cuda.stream(_finishing_stream(best.device)):
            return finish(scores)

    return wait


@cache
def _finishing_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all predictors of a GPU: each stream keeps memory. Its small kernels need not wait for the network's."""
    return torch.cuda.Stream(device, priority=-1)


@torch.inference_mode()
def _finish(
    images: Tensor,
    look_at: Callable[[Tensor], Look],
    grid: Grid,
    choosers: Sequence[Choose],
    remembered: dict[tuple[Span, Span], Look],
    best: Tensor,
    *,
    crf: bool,
    keep_planes: bool,
) -> Found:
    scores: list[list[float]] = best.tolist()

    choices = [choose(row) for choose, row in zip(choosers, scores, strict=True)]
    # Protocols that keep the same classes of an image share one result.
    wanted = dict.fromkeys((place, kept) for place, choice in enumerate(choices) for kept in choice.values())
    parts = _within_memory(list(wanted), grid)
    dtype = np.uint8 if best.shape[1] <= 255 else np.uint16
    rows = [_rows(part, images.device) for part in parts]
    canvases = [Canvas(grid, planes.clamp(min=0), dtype=dtype, keep_planes=keep_planes) for _, planes, _ in rows]
    for tile in grid if parts else ():
        pixels = _crop(images, tile)
        found = remembered.get(tile) or look_at(pixels)
        for (places, planes, present), canvas in zip(rows, canvases, strict=True):
            merged = found.merge(places, planes)
            canvas.add(_refined(pixels[places], merged, present) if crf else merged)

    results = {
        (place, kept): Segmented(
            kept,
            canvas.masks[row].copy(),
            None if canvas.planes is None else canvas.planes[row, : 1 + len(kept)].clone(),
        )
        for part, canvas in zip(parts, canvases, strict=True)
        for row, (place, kept) in enumerate(part)
    }
    return [
        (row, {name: results[place, kept] for name, kept in choice.items()})
        for place, (row, choice) in enumerate(zip(scores, choices, strict=True))
    ]


def _refined(pixels: Tensor, merged: Tensor, present: Tensor) -> Tensor:
    """The masks after the dense CRF; the background alone has no border to refine."""
    some = present[:, 1:].any(1)
    if some.all():
        return dense_crf(pixels, merged, present=present)
    if not some.any():
        return merged
    rows = to_device(some.nonzero().flatten().tolist(), torch.int64, merged.device)
    refined = dense_crf(pixels[rows], merged[rows], present=present[some])
    return merged.index_copy_(0, rows, refined)


def _within_memory(wanted: list[_Wanted], grid: Grid) -> list[list[_Wanted]]:
    """What is wanted, in parts whose planes at full size are held at once."""
    if not wanted:
        return []
    planes = 1 + max(len(kept) for _, kept in wanted)
    most = max(1, _MOST_PLANE_VALUES // (planes * grid.size[0] * grid.size[1]))
    return [wanted[start : start + most] for start in range(0, len(wanted), most)]


def _rows(part: list[_Wanted], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The images, [R], and their planes as `Look.merge` takes them, [R, 1 + K]; and, on the CPU, which there are."""
    longest = max(len(kept) for _, kept in part)
    planes = [[0, *(k + 1 for k in kept), *[-1] * (longest - len(kept))] for _, kept in part]
    places = to_device([place for place, _ in part], torch.int64, device)
    return places, to_device(planes, torch.int64, device), torch.tensor(planes) >= 0


def _crop(images: Tensor, tile: tuple[Span, Span]) -> Tensor:
    (top, bottom), (left, right) = tile
    return images[..., top:bottom, left:right]
