"""Mean-field inference on a CPU, in blocks of rows that worker threads share.

A block's values stay in a core's cache from one operator to the next. The result does not depend on the blocks, and so
not on the number of threads either.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tagseg.refine._mean_field import ClassGroups, grouped_softmax
from tagseg.refine._parallel import Workers
from tagseg.refine._sparse import CsrMatrix, EllMatrix
from tagseg.refine.lattice import Lattice


def mean_field(
    lattice: Lattice, probs: Tensor, groups: ClassGroups, *, clip: float, iterations: int, workers: Workers
) -> Tensor:
    """Run mean-field inference as the function of this name in `_mean_field` does.

    Args:
        lattice: Sum of both kernels, over the pixels of all images.
        probs: Class probabilities of float32 [images, classes, pixels].
        groups: Groups of classes that are computed.
        clip: Lower bound of the probabilities.
        iterations: Number of mean-field updates.
        workers: Threads that share the work.

    Returns:
        The probabilities Q of all classes, [images, classes, pixels].
    """
    images, _, pixels = probs.shape
    points, channels = len(lattice.splat.starts), groups.counts.shape[1]
    splat = lattice.splat.split(workers.blocks(len(lattice.splat.columns), least=2**15, most=2**18))
    blurs = [[(rows, blur.rows(rows)) for rows in workers.blocks(points)] for blur in lattice.blur_steps]
    pixel_blocks = [(image, rows) for image in range(images) for rows in workers.blocks(pixels)]
    groups_of = [groups.of_image(image) for image in range(images)]
    unary, q = probs.new_empty(2, images, pixels, channels)
    values, blurred = probs.new_empty(2, points, channels)
    refined = torch.empty_like(probs)

    def initialize(block: tuple[int, slice]) -> None:
        image, rows = block
        logits = groups_of[image].unary(probs[image : image + 1, :, rows], clip)
        unary[image, rows] = logits[0]
        grouped_softmax(logits, groups_of[image].counts, out=q[image : image + 1, rows])

    def update(block: tuple[int, slice]) -> None:
        image, rows = block
        first = image * pixels
        messages = lattice.slice.rows(slice(first + rows.start, first + rows.stop)) @ values
        logits = messages.add_(unary[image, rows])[None]
        grouped_softmax(logits, groups_of[image].counts, out=q[image : image + 1, rows])

    def expand(block: tuple[int, slice]) -> None:
        image, rows = block
        groups_of[image].expand(q[image : image + 1, rows], out=refined[image, :, rows])

    workers.for_each(initialize, pixel_blocks)
    for _ in range(iterations):
        _multiply(splat, q.flatten(0, 1), values, workers)
        for blur in blurs:
            _multiply(blur, values, blurred, workers)
            values, blurred = blurred, values
        workers.for_each(update, pixel_blocks)
    workers.for_each(expand, pixel_blocks)
    return refined


def _multiply(
    blocks: Sequence[tuple[slice, CsrMatrix | EllMatrix]], dense: Tensor, out: Tensor, workers: Workers
) -> None:
    """Multiply a sparse matrix, given in blocks of rows, with a dense one."""

    def multiply(block: tuple[slice, CsrMatrix | EllMatrix]) -> None:
        rows, matrix = block
        out[rows] = matrix @ dense

    workers.for_each(multiply, blocks)
