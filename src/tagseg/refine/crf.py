"""Dense CRF: move the borders of soft masks to the edges of the image, without training.

Krähenbühl and Koltun, "Efficient Inference in Fully Connected CRFs with Gaussian Edge Potentials", NeurIPS 2011. Every
pixel is linked with every other one, and two pixels agree the more on a class the nearer they are in place (Gaussian
kernel) or in place and colour (bilateral kernel). The results are those of the authors' C++ code, up to rounding.
"""

from dataclasses import replace
from functools import lru_cache
from math import inf, isfinite

import torch
from torch import Tensor

from tagseg._checks import require_finite, require_shape
from tagseg._device import to_device
from tagseg._kernels import triton_runs
from tagseg.refine._numbering import Range
from tagseg.refine._slots import Slots, assign_slots
from tagseg.refine._sparse import EqualRows
from tagseg.refine.lattice import Lattice, add, build_lattice, repeat

# Pixels that are computed together: what keeps a GPU busy, at about 500 bytes each, and what stays near a CPU's caches.
_MOST_PIXELS_OF_GPU, _MOST_PIXELS_OF_CPU = 2**22, 2**16
# Pixels of the largest image whose Gaussian lattice is kept, at about 80 bytes each.
_MOST_PIXELS_KEPT = 2**20


@torch.no_grad()
def dense_crf(
    image: Tensor,
    probs: Tensor,
    *,
    present: Tensor | None = None,
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
    `clip` cost together as much as one. Images of one size can be given as a batch, which a GPU computes together;
    each gets what it would get alone.

    Args:
        image: RGB, [3, H, W] or [B, 3, H, W], uint8, or floating point in [0, 1], which is rounded to the same 256
            levels.
        probs: class probabilities, [C, H, W] or [B, C, H, W], not negative; they need not sum to 1.
        present: which classes take part, bool [C] or [B, C]; all by default. The others are as if they were not in
            `probs`, and come back as 0.
        iterations: mean-field steps; 0 gives back the clipped and normalised probabilities.
        gaussian_sxy: reach of the Gaussian kernel, in pixels. Reaches that are so narrow that all places and colours
            which there can be would take more than 1e17 cells are refused.
        gaussian_compat: weight of the Gaussian kernel.
        bilateral_sxy: reach of the bilateral kernel in place, in pixels.
        bilateral_srgb: reach of the bilateral kernel in colour, in grey levels of 256.
        bilateral_compat: weight of the bilateral kernel.
        clip: the least probability; smaller ones are raised to it before the logarithm.

    Returns:
        The refined probabilities Q, float32, of the shape of `probs`, which sum to 1 in each pixel.
    """
    _require_image_and_probs(image, probs)
    # What the CPU decides on is fetched at once: whenever it waits for a GPU, that has nothing to do next.
    occurs = _peaks(probs) > clip
    present = torch.ones_like(occurs) if present is None else _checked_present(present, probs)
    _require_in_range("iterations", iterations, 0, inf)
    _require_in_range("clip", clip, torch.finfo(torch.float32).tiny, 1)
    reaches = {"gaussian_sxy": gaussian_sxy, "bilateral_sxy": bilateral_sxy, "bilateral_srgb": bilateral_srgb}
    for name, reach in reaches.items():
        _require_in_range(name, reach, 1e-3, inf)
    for name, compat in {"gaussian_compat": gaussian_compat, "bilateral_compat": bilateral_compat}.items():
        _require_in_range(name, compat, 0, 1e6)

    height, width = image.shape[-2:]
    kept = height * width <= _MOST_PIXELS_KEPT
    build_smooth = _gaussian if kept else _gaussian.__wrapped__
    together = max((_MOST_PIXELS_OF_GPU if image.is_cuda else _MOST_PIXELS_OF_CPU) // (height * width), 1)
    parts = zip(
        _batch(image, 3).split(together),
        _batch(probs, 3).split(together),
        _batch(occurs, 1).split(together),
        _batch(present, 1).split(together),
        strict=True,
    )
    refined = []
    with torch.cuda.device_of(image):  # Triton starts kernels on the current GPU
        # What one stream of a GPU makes, another must not read before it is there, nor after it is gone.
        stream = torch.cuda.current_stream(image.device).cuda_stream if image.is_cuda else 0
        smooth = build_smooth(height, width, gaussian_sxy, gaussian_compat, image.device, stream)
        for images, planes, occurring, taking_part in parts:
            edges = _bilateral(images, bilateral_sxy, bilateral_srgb, bilateral_compat)
            lattice = add(repeat(smooth, len(images)), edges)
            slots = assign_slots(occurring, taking_part, image.device, power_of_two=triton_runs(probs))
            refined.append(_mean_field(lattice, planes.flatten(2).float(), slots, clip, iterations))
    return (refined[0] if len(refined) == 1 else torch.cat(refined)).view(probs.shape)


def _mean_field(lattice: Lattice, probs: Tensor, slots: Slots, clip: float, iterations: int) -> Tensor:
    """Let every pixel ask all others again and again which class it is.

    Args:
        lattice: the sum of both kernels, over the pixels of all images.
        probs: float32 [images, classes, pixels].
        slots: where the classes are computed.
        clip: the least probability.
        iterations: how often.
    """
    log_probs = slots.log_probs(probs, clip)
    shares = _shares(log_probs, slots.copies)
    if triton_runs(shares):
        from tagseg.refine._sparse_triton import mean_field

        mean_field(lattice, log_probs, slots.copies, shares, iterations)
        return slots.spread(shares)
    for _ in range(iterations):
        answers = lattice.filter(shares.flatten(0, 1))
        shares = _shares(answers.view_as(log_probs).add_(log_probs), slots.copies)
    return slots.spread(shares)


def _shares(scores: Tensor, copies: Tensor) -> Tensor:
    """The probability of each of the classes that a slot stands for: a softmax in which it counts so many times.

    Args:
        scores: [images, pixels, slots].
        copies: how many classes each slot stands for, [images, slots].
    """
    # On the CPU torch's softmax computes rows that do not fill a vector register one number at a time.
    fast = scores.shape[2] >= 16 or scores.is_cuda
    powers = scores.softmax(2) if fast else scores.sub(scores.amax(2, keepdim=True)).exp_()
    # Matrix times vector: a product of matrices would be rounded to TF32 where training has allowed that.
    totals = torch.stack([own @ numbers for own, numbers in zip(powers, copies, strict=True)])
    return powers.div_(totals[:, :, None])


# Images of a set have few sizes, and on them alone this lattice depends. Each stream of a GPU has its own.
@lru_cache(maxsize=4)
def _gaussian(
    height: int,
    width: int,
    sxy: float,
    compat: float,
    device: torch.device,
    stream: int,  # noqa: ARG001  a part of what the cache is asked by
) -> Lattice:
    """The kernel of nearness in place, for one image, along as many axes as the other kernel has."""
    features = torch.empty(2, 1, height, width, device=device, dtype=torch.float32)
    _set_place(features)
    return _normalised(build_lattice(*_scaled(features, [sxy, sxy]), 1, axes=6), compat)


def _bilateral(images: Tensor, sxy: float, srgb: float, compat: float) -> Lattice:
    """The kernel of nearness in place and colour, for images [B, 3, H, W]."""
    count, _, height, width = images.shape
    features = images.new_empty(5, count, height, width, dtype=torch.float32)
    _set_place(features)
    levels = images if images.dtype == torch.uint8 else (images * 255).round()
    features[2:] = levels.transpose(0, 1)
    lattice = build_lattice(*_scaled(features, [sxy, sxy, srgb, srgb, srgb]), count, axes=6)
    return _normalised(lattice, compat)


def _set_place(features: Tensor) -> None:
    """Write column and row of every pixel into the first two of features [d, images, H, W]."""
    height, width = features.shape[2:]
    features[0] = torch.arange(width, device=features.device)
    features[1] = torch.arange(height, device=features.device)[:, None]


def _scaled(features: Tensor, reaches: list[float]) -> tuple[Tensor, list[Range]]:
    """Divide columns, rows and levels [d, images, H, W] by their reaches, so that a reach becomes 1.

    Returns:
        The features, [d, pixels], and the range of each.
    """
    height, width = features.shape[2:]
    largest = [width - 1, height - 1, 255, 255, 255]
    ranges = [(0.0, most / reach) for most, reach in zip(largest, reaches, strict=False)]
    # The divisor is a tensor on purpose: on a GPU torch multiplies by a number's inverse, which rounds differently.
    return features.flatten(1).div_(to_device(reaches, torch.float32, features.device)[:, None]), ranges


def _normalised(lattice: Lattice, compat: float) -> Lattice:
    """Scale a filter so that it treats all pixels alike (symmetric normalisation), then weight it by `compat`.

    The factors go into the entries of the matrices, which leaves nothing to multiply in the iterations.
    """
    splat, read = lattice.splat, lattice.slice
    brightness = lattice.filter(read.weights.new_ones(len(read.weights), 1))
    norm = (brightness + 1e-20).rsqrt()
    return replace(
        lattice,
        splat=replace(splat, weights=splat.weights * norm.squeeze(1)[splat.columns]),
        slice=EqualRows(read.columns, read.weights * (compat * norm)),
    )


def _batch(tensor: Tensor, dimensions: int) -> Tensor:
    """A tensor of one image, with so many dimensions, as a batch of one; a batch as it is."""
    return tensor[None] if tensor.dim() == dimensions else tensor


def _require_image_and_probs(image: Tensor, probs: Tensor) -> None:
    """Refuse what is not an RGB image with class probabilities of the same size on the same device."""
    batch = "B, " if isinstance(image, Tensor) and image.dim() == 4 else ""
    require_shape("image", image, f"[{batch}3, H, W]")
    require_shape("probs", probs, f"[{batch}C, H, W]")
    if image.shape[-3] != 3:
        raise ValueError(f"image must have 3 channels (RGB), got {image.shape[-3]}")
    if image.shape[:-3] != probs.shape[:-3]:
        raise ValueError(f"image and probs must be of one batch size, got {len(image)} and {len(probs)}")
    if image.shape[-2:] != probs.shape[-2:]:
        raise ValueError(
            f"probs is {_size(probs)} but image is {_size(image)}; both must have the same height and width"
        )
    if probs.numel() == 0:
        raise ValueError(f"probs must have at least one class and one pixel, got shape {list(probs.shape)}")
    if image.device != probs.device:
        raise ValueError(f"probs is on {probs.device} but image is on {image.device}; both must be on the same device")
    if image.is_floating_point():
        darkest, brightest = _extremes("image", image, image.amin(), image.amax()).tolist()
        _require_in_range("the darkest value of a floating-point image", darkest, 0, 1)
        _require_in_range("the brightest value of a floating-point image", brightest, 0, 1)
    elif image.dtype != torch.uint8:
        raise ValueError(f"image must be uint8, or floating point in [0, 1], got {image.dtype}")


def _peaks(probs: Tensor) -> Tensor:
    """The largest probability of each class of each image, on the CPU; refuse what is not finite or negative."""
    extremes = _extremes("probs", probs, probs.amin((-2, -1)), probs.amax((-2, -1)))
    _require_in_range("the least value of probs", float(extremes.min()), 0, inf)
    return extremes[1]


def _extremes(name: str, tensor: Tensor, least: Tensor, largest: Tensor) -> Tensor:
    """The least and the largest values of a tensor, on the CPU; refuse a tensor that is not finite."""
    extremes = torch.stack([least, largest]).float().cpu()
    if not isfinite(extremes.sum()):  # a NaN is both the least and the largest
        require_finite(name, tensor)
    return extremes


def _checked_present(present: Tensor, probs: Tensor) -> Tensor:
    """Say on the CPU which classes take part; refuse what does not say it of each class, or lets none take part."""
    if present.dtype != torch.bool or present.shape != probs.shape[:-2]:
        raise ValueError(
            f"present must be bool {list(probs.shape[:-2])}, like probs without height and width, "
            f"got {present.dtype} {list(present.shape)}"
        )
    present = present.cpu()
    if not present.any(-1).all():
        raise ValueError("present must have at least one class in each image, got an image without any")
    return present


def _require_in_range(name: str, value: float, low: float, high: float) -> None:
    """Refuse a value outside [low, high]."""
    if not low <= value <= high:
        allowed = f"at least {low:g}" if high == inf else f"from {low:g} to {high:g}"
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _size(tensor: Tensor) -> str:
    """Height and width for an error message."""
    return f"{tensor.shape[-2]}x{tensor.shape[-1]}"
