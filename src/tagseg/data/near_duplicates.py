"""Find images that are almost equal: scaled, compressed or brightened copies, and neighboring frames of a video.

Two images are almost equal if the layouts of their 16 x 16 gray thumbnails correlate by 0.9. The means of all rows and
columns are subtracted first, because horizons and skies, which many photos share, would correlate as well. Among the 56
million pairs of VOC's training images, one pair reaches 0.9, a photo and its gray copy; the next has 0.86.
"""

from collections.abc import Iterator
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tagseg._progress import ProgressBar
from tagseg.data.images import THUMBNAIL_SIDE

Thumbnails = NDArray[np.uint8]  # [N, THUMBNAIL_SIDE, THUMBNAIL_SIDE]

_MIN_CORRELATION = 0.9
_MIN_LENGTH = THUMBNAIL_SIDE  # one gray level of deviation: less is the noise of rounding
_BLOCK = 2048  # images that are compared at a time: 16 MiB


def find_copies(images: Thumbnails, originals: Thumbnails | None = None, *, progress: bool = False) -> dict[int, int]:
    """Find the most similar original of each image that has an almost equal one.

    Args:
        images: Thumbnails of images.
        originals: Those to compare with; None means that each image is compared with those before it.
        progress: Show the progress on stderr.

    Returns:
        Position of the original by the position of the image.
    """
    copies = {}
    count = ceil(len(images) / _BLOCK)
    total = count * (count + 1) // 2 if originals is None else count * ceil(len(originals) / _BLOCK)
    with ProgressBar("Comparing images, block", total, quiet=not progress) as bar:
        done = 0
        for start, queries in _blocks(images):
            best, best_positions = np.full(len(queries), _MIN_CORRELATION, np.float32), np.full(len(queries), -1)
            for first, candidates in _blocks(images[: start + len(queries)] if originals is None else originals):
                correlations = queries @ candidates.T
                if originals is None and first == start:
                    correlations = np.tril(correlations, -1)
                positions = correlations.argmax(1)
                values = correlations[np.arange(len(queries)), positions]
                better = values > best
                best[better], best_positions[better] = values[better], first + positions[better]
                done += 1
                bar.update(done)
            copies.update({int(start + i): int(best_positions[i]) for i in np.flatnonzero(best_positions >= 0)})
    return copies


def _blocks(thumbnails: Thumbnails) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Blocks of layouts, each of length 1, with the position of their first image; that of one color is 0."""
    for start in range(0, len(thumbnails), _BLOCK):
        gray = thumbnails[start : start + _BLOCK].astype(np.float32)
        gray -= gray.mean(1, keepdims=True)
        gray -= gray.mean(2, keepdims=True)
        layout = gray.reshape(len(gray), -1)
        length = np.linalg.norm(layout, axis=1, keepdims=True)
        yield start, np.where(length > _MIN_LENGTH, layout / np.maximum(length, _MIN_LENGTH), 0)
