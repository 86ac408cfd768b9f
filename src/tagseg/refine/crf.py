"""Dense CRF: move the borders of soft masks to the edges of the image, without training.

Krähenbühl and Koltun, "Efficient Inference in Fully Connected CRFs with Gaussian Edge Potentials", NeurIPS 2011. Every
pixel is linked with every other one, and two pixels agree the more on a class the nearer they are in place (Gaussian
kernel) or in place and colour (bilateral kernel). The results are those of the authors' C++ code, up to rounding.
"""

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from tagseg._checks import require_finite, require_shape
from tagseg.refine.lattice import Lattice, SparseRows, build_lattice, equal_rows


@torch.no_grad()
def dense_crf(
    image: Tensor,
    probs: Tensor,
    *,
    iterations: int = 10,
    gaussian_sxy: float = 3.0,
    gaussian_compat: float = 3.0,
    bilateral_sxy: float = 80.0,
    bilateral_srgb: float = 13.0,
    bilateral_compat: float = 10.0,
    clip: float = 1e-5,
) -> Tensor:
    """Refine class probabilities by mean-field inference in a fully connected CRF with Potts compatibility.

    Runs on the tensors' device. The time grows with the number of classes that occur: all those that are nowhere above
    `clip` cost together as much as one.

    Args:
        image: RGB, [3, H, W], uint8, or floating point in [0, 1], which is rounded to the same 256 levels.
        probs: class probabilities, [C, H, W], not negative; they need not sum to 1.
        iterations: mean-field steps; 0 gives back the clipped and normalised probabilities.
        gaussian_sxy: reach of the Gaussian kernel, in pixels.
        gaussian_compat: weight of the Gaussian kernel.
        bilateral_sxy: reach of the bilateral kernel in place, in pixels.
        bilateral_srgb: reach of the bilateral kernel in colour, in grey levels of 256.
        bilateral_compat: weight of the bilateral kernel.
        clip: the least probability; smaller ones are raised to it before the logarithm.

    Returns:
        The refined probabilities Q, float32 [C, H, W], which sum to 1 in each pixel.
    """
    _require_image_and_probs(image, probs)
    _require_in_range("iterations", iterations, 0, inf)
    _require_in_range("clip", clip, torch.finfo(torch.float32).tiny, 1)
    reaches = {"gaussian_sxy": gaussian_sxy, "bilateral_sxy": bilateral_sxy, "bilateral_srgb": bilateral_srgb}
    for name, reach in reaches.items():
        _require_in_range(name, reach, 1e-3, inf)
    for name, compat in {"gaussian_compat": gaussian_compat, "bilateral_compat": bilateral_compat}.items():
        _require_in_range(name, compat, 0, 1e6)

    place, colour = _place(image), _colour(image)
    gaussian = _scaled([(place, gaussian_sxy)])
    bilateral = _scaled([(place, bilateral_sxy), (colour, bilateral_srgb)])
    smooth = _normalised(build_lattice(gaussian), gaussian_compat)
    edges = _normalised(build_lattice(bilateral), bilateral_compat)
    read = _side_by_side(smooth, edges)

    log_probs, copies, group_of_class = _group_classes(probs.float().flatten(1), clip)
    q = _softmax(log_probs)
    for _ in range(iterations):
        points = torch.cat([smooth.spread(q), edges.spread(q)])
        q = _softmax((read @ points.div_(copies)).add_(log_probs))
    return (q / copies).T[group_of_class].view(probs.shape)


def _group_classes(probs: Tensor, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """Merge the classes that are nowhere above the clip: they start alike, so they stay alike, and one stands for all.

    With m classes in a group, the softmax over log(p) + log(m) gives the sum of their m equal probabilities.

    Args:
        probs: [C, pixels].
        clip: the least probability.

    Returns:
        The groups' log(p) + log(m), [pixels, groups]; their sizes m, [groups]; the group of each class, [C].
    """
    active = probs.amax(1) > clip
    # Each active class is its own group; that of the silent classes, if there are any, comes last.
    group_of_class = torch.where(active, active.cumsum(0) - 1, active.sum())
    copies = torch.bincount(group_of_class).float()
    members = torch.cat([probs[active], probs[~active][:1]])
    # Row by row: a step of the lattice moves all classes of a pixel at once.
    log_probs = members.clamp(clip, 1).log_().T.contiguous()
    return log_probs.add_(copies.log()), copies, group_of_class


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the classes of scores [pixels, classes]."""
    # On the CPU torch computes rows that do not fill a vector register one number at a time, five times slower.
    if scores.shape[1] >= 16 or scores.is_cuda:
        return scores.softmax(1)
    powers = scores.sub(scores.amax(1, keepdim=True)).exp_()
    return powers.div_(powers.sum(1, keepdim=True))


def _place(image: Tensor) -> Tensor:
    """Column and row of every pixel, [2, pixels]."""
    rows, columns = (torch.arange(size, device=image.device) for size in image.shape[1:])
    row, column = torch.meshgrid(rows, columns, indexing="ij")
    return torch.stack([column, row]).flatten(1)


def _colour(image: Tensor) -> Tensor:
    """Red, green and blue of every pixel from 0 to 255, [3, pixels]."""
    levels = image if image.dtype == torch.uint8 else (image * 255).round()
    return levels.flatten(1)


def _scaled(parts: list[tuple[Tensor, float]]) -> Tensor:
    """Stack features [d, pixels], each divided by its reach, so that a reach becomes 1."""
    # The divisor is a tensor on purpose: on a GPU torch multiplies by a number's inverse, which rounds differently.
    return torch.cat([part.float() / part.new_full((1, 1), reach, dtype=torch.float32) for part, reach in parts])


def _normalised(lattice: Lattice, compat: float) -> Lattice:
    """Scale a filter so that it treats all pixels alike (symmetric normalisation), then weight it by `compat`.

    The factors go into the entries of the matrices, which leaves nothing to multiply in the iterations.
    """
    pixels = len(lattice.slice.starts)
    brightness = lattice.filter(lattice.slice.weights.new_ones(pixels, 1)).squeeze(1)
    norm = (brightness + 1e-20).rsqrt()
    weights = lattice.slice.weights.view(pixels, -1) * (compat * norm)[:, None]
    return replace(
        lattice, splat=lattice.splat.scale_columns(norm), slice=replace(lattice.slice, weights=weights.flatten())
    )


def _side_by_side(left: Lattice, right: Lattice) -> SparseRows:
    """One matrix that reads the points of both lattices, the left one's first, and adds up what both say to a pixel."""
    pixels = len(left.slice.starts)
    columns = [left.slice.columns, right.slice.columns + len(left.splat.starts)]
    weights = [left.slice.weights, right.slice.weights]
    return equal_rows(
        torch.cat([part.view(pixels, -1) for part in columns], 1),
        torch.cat([part.view(pixels, -1) for part in weights], 1),
    )


def _require_image_and_probs(image: Tensor, probs: Tensor) -> None:
    """Refuse what is not an RGB image with class probabilities of the same size on the same device."""
    require_shape("image", image, "[3, H, W]")
    require_shape("probs", probs, "[C, H, W]")
    if image.shape[0] != 3:
        raise ValueError(f"image must have 3 channels (RGB), got {image.shape[0]}")
    if image.shape[1:] != probs.shape[1:]:
        raise ValueError(
            f"probs is {_size(probs)} but image is {_size(image)}; both must have the same height and width"
        )
    if probs.numel() == 0:
        raise ValueError(f"probs must have at least one class and one pixel, got shape {list(probs.shape)}")
    if image.device != probs.device:
        raise ValueError(f"probs is on {probs.device} but image is on {image.device}; both must be on the same device")
    if image.is_floating_point():
        require_finite("image", image)
        _require_in_range("the darkest value of a floating-point image", float(image.min()), 0, 1)
        _require_in_range("the brightest value of a floating-point image", float(image.max()), 0, 1)
    elif image.dtype != torch.uint8:
        raise ValueError(f"image must be uint8, or floating point in [0, 1], got {image.dtype}")
    require_finite("probs", probs)
    _require_in_range("the least value of probs", float(probs.min()), 0, inf)


def _require_in_range(name: str, value: float, low: float, high: float) -> None:
    """Refuse a value outside [low, high]."""
    if not low <= value <= high:
        allowed = f"at least {low:g}" if high == inf else f"from {low:g} to {high:g}"
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _size(tensor: Tensor) -> str:
    """Height and width for an error message."""
    return f"{tensor.shape[1]}x{tensor.shape[2]}"
