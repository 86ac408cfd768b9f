"""Dense CRF: align soft masks with the edges of the image, without training.

Krähenbühl and Koltun, "Efficient Inference in Fully Connected CRFs with Gaussian Edge Potentials", NeurIPS 2011. Every
pair of pixels is connected. Pixels influence each other's class the more the closer they are in position (Gaussian
kernel) or in position and color (bilateral kernel). The results are those of the authors' C++ code up to rounding.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, isfinite

import torch
from torch import Tensor

from tagseg._checks import ArrayT, like, require_finite, require_shape, to_tensors
from tagseg._device import to_device, triton_available
from tagseg.refine import _crf_cpu
from tagseg.refine._mean_field import ClassGroups, group_classes, mean_field
from tagseg.refine._parallel import Workers, run_with_workers
from tagseg.refine._sparse import EllMatrix
from tagseg.refine.lattice import Lattice, Range, add, build_lattice, repeat

# Pixels that are computed in one batch: enough for a GPU at about 500 bytes each, few enough for a CPU's caches.
_GPU_BATCH_PIXELS, _CPU_BATCH_PIXELS = 2**22, 2**16
# Pixels of the largest image whose Gaussian lattice is cached, at about 80 bytes each.
_CACHED_PIXELS = 2**20


def dense_crf(
    image: ArrayT,
    probs: ArrayT,
    *,
    present: ArrayT | None = None,
    iterations: int = 10,
    gaussian_sxy: float = 3.0,
    gaussian_compat: float = 3.0,
    bilateral_sxy: float = 80.0,
    bilateral_srgb: float = 13.0,
    bilateral_compat: float = 10.0,
    clip: float = 1e-5,
) -> ArrayT:
    """Refine class probabilities by mean-field inference in a fully connected CRF with Potts compatibility.

    Runs on the device of the tensors, without gradients. The time grows with the number of classes that occur: all
    classes that are nowhere above `clip` cost as much as one. Images of the same size can be passed as a batch, which a
    GPU computes at once; each gets the result that it would get alone.

    The arguments are torch tensors or numpy arrays, all of the same kind and in the same layout, and the result is of
    that kind.

    Args:
        image: RGB image, [3, H, W] or [B, 3, H, W], uint8, or floating point in [0, 1], which is rounded to 256 levels.
        probs: Class probabilities, [C, H, W] or [B, C, H, W], not negative; they need not sum to 1.
        present: Which classes take part, bool [C] or [B, C]; all by default. The others are ignored, and their result
            is 0.
        iterations: Number of mean-field updates; 0 returns the clipped and normalized probabilities.
        gaussian_sxy: Standard deviation of the Gaussian kernel in pixels. Deviations are refused if they are so small
            that the positions and colors span more than 1e17 lattice cells.
        gaussian_compat: Weight of the Gaussian kernel.
        bilateral_sxy: Standard deviation of the bilateral kernel in position, in pixels.
        bilateral_srgb: Standard deviation of the bilateral kernel in color, in levels of 256.
        bilateral_compat: Weight of the bilateral kernel.
        clip: Lower bound of the probabilities, applied before the logarithm.

    Returns:
        The refined probabilities Q, float32 in the shape of `probs`, which sum to 1 at each pixel.
    """
    tensors = to_tensors(image=image, probs=probs, present=present)
    settings = _Settings(
        iterations, gaussian_sxy, gaussian_compat, bilateral_sxy, bilateral_srgb, bilateral_compat, clip
    )
    settings.check()
    if tensors[0].device.type == "cpu":
        return like(run_with_workers(lambda workers: _infer(*tensors, settings=settings, workers=workers)), probs)
    with torch.no_grad(), torch.cuda.device_of(tensors[0]):  # Triton launches kernels on the current GPU
        return like(_infer(*tensors, settings=settings, workers=Workers()), probs)


@dataclass(frozen=True)
class _Settings:
    """Settings of `dense_crf`."""

    iterations: int
    gaussian_sxy: float
    gaussian_compat: float
    bilateral_sxy: float
    bilateral_srgb: float
    bilateral_compat: float
    clip: float

    def check(self) -> None:
        """Raise a ValueError if a setting is out of range."""
        _require_in_range("iterations", self.iterations, 0, inf)
        _require_in_range("clip", self.clip, torch.finfo(torch.float32).tiny, 1)
        for name in ("gaussian_sxy", "bilateral_sxy", "bilateral_srgb"):
            _require_in_range(name, getattr(self, name), 1e-3, inf)
        for name in ("gaussian_compat", "bilateral_compat"):
            _require_in_range(name, getattr(self, name), 0, 1e6)


def _infer(
    image: Tensor, probs: Tensor, present: Tensor | None = None, *, settings: _Settings, workers: Workers
) -> Tensor:
    """Check the tensors and refine the probabilities, batch by batch; see `dense_crf`."""
    _check_image_and_probs(image, probs)
    # One transfer fetches all values that the host needs: the GPU idles while the host waits for it.
    occurs = _class_maxima(probs) > settings.clip
    takes_part = torch.ones_like(occurs) if present is None else _check_present(present, probs)

    device, (height, width) = image.device, image.shape[-2:]
    build_gaussian = _gaussian if height * width <= _CACHED_PIXELS else _gaussian.__wrapped__
    # A lattice that one CUDA stream builds must not be read by another before it is complete.
    stream = torch.cuda.current_stream(device).cuda_stream if image.is_cuda else 0
    gaussian = build_gaussian(height, width, settings.gaussian_sxy, settings.gaussian_compat, device, stream)
    batch_size = max((_GPU_BATCH_PIXELS if image.is_cuda else _CPU_BATCH_PIXELS) // (height * width), 1)
    batches = zip(
        _as_batch(image, 3).split(batch_size),
        _as_batch(probs, 3).split(batch_size),
        _as_batch(occurs, 1).split(batch_size),
        _as_batch(takes_part, 1).split(batch_size),
        strict=True,
    )
    refined = []
    for images, class_probs, class_occurs, class_takes_part in batches:
        bilateral = _bilateral(images, settings, workers)
        lattice = add(repeat(gaussian, len(images)), bilateral)
        groups = group_classes(class_occurs, class_takes_part, device, power_of_two=triton_available(probs))
        refined.append(_mean_field(lattice, class_probs.flatten(2).float(), groups, settings, workers))
    return (refined[0] if len(refined) == 1 else torch.cat(refined)).view(probs.shape)


def _mean_field(lattice: Lattice, probs: Tensor, groups: ClassGroups, settings: _Settings, workers: Workers) -> Tensor:
    """Run mean-field inference by the implementation for the device."""
    clip, iterations = settings.clip, settings.iterations
    if triton_available(probs):
        from tagseg.refine import _crf_triton  # Triton is not available on every platform

        return _crf_triton.mean_field(lattice, probs, groups, clip=clip, iterations=iterations)
    if probs.device.type == "cpu":
        return _crf_cpu.mean_field(lattice, probs, groups, clip=clip, iterations=iterations, workers=workers)
    return mean_field(lattice, probs, groups, clip=clip, iterations=iterations)


# A dataset has few image sizes, and this lattice depends only on the size.
@lru_cache(maxsize=4)
def _gaussian(
    height: int,
    width: int,
    sxy: float,
    compat: float,
    device: torch.device,
    stream: int,  # noqa: ARG001  part of the cache's key
) -> Lattice:
    """Build the Gaussian kernel of one image, with as many axes as the bilateral kernel has."""
    features = torch.empty(2, 1, height, width, device=device, dtype=torch.float32)
    _fill_positions(features)
    return _normalize(build_lattice(*_scale(features, [sxy, sxy]), 1, axes=6), compat)


def _bilateral(images: Tensor, settings: _Settings, workers: Workers) -> Lattice:
    """Build the bilateral kernel of images [B, 3, H, W]."""
    count, _, height, width = images.shape
    features = images.new_empty(5, count, height, width, dtype=torch.float32)
    _fill_positions(features)
    levels = images if images.dtype == torch.uint8 else (images * 255).round()
    features[2:] = levels.transpose(0, 1)
    deviations = [settings.bilateral_sxy] * 2 + [settings.bilateral_srgb] * 3
    lattice = build_lattice(*_scale(features, deviations), count, axes=6, workers=workers)
    return _normalize(lattice, settings.bilateral_compat)


def _fill_positions(features: Tensor) -> None:
    """Write column and row of every pixel into the first two of features [d, images, H, W]."""
    height, width = features.shape[2:]
    features[0] = torch.arange(width, device=features.device)
    features[1] = torch.arange(height, device=features.device)[:, None]


def _scale(features: Tensor, deviations: list[float]) -> tuple[Tensor, list[Range]]:
    """Divide features by their standard deviations.

    Args:
        features: Columns, rows and color levels, [d, images, H, W].
        deviations: Standard deviation of each.

    Returns:
        The features, [d, pixels], and the range of each.
    """
    height, width = features.shape[2:]
    largest = [width - 1, height - 1, 255, 255, 255]
    ranges = [(0.0, high / deviation) for high, deviation in zip(largest, deviations, strict=False)]
    # The divisor is a tensor, because on a GPU torch multiplies by the inverse of a number, which rounds differently.
    return features.flatten(1).div_(to_device(deviations, torch.float32, features.device)[:, None]), ranges


def _normalize(lattice: Lattice, compat: float) -> Lattice:
    """Apply symmetric normalization and the compatibility weight to a filter.

    The factors are multiplied into the weights of the matrices, so that the iterations need not apply them.
    """
    splat, slice_matrix = lattice.splat, lattice.slice
    sums = lattice.filter(slice_matrix.weights.new_ones(len(slice_matrix.weights), 1))
    norm = (sums + 1e-20).rsqrt()
    return replace(
        lattice,
        splat=replace(splat, weights=splat.weights * norm.squeeze(1)[splat.columns]),
        slice=EllMatrix(slice_matrix.columns, slice_matrix.weights * (compat * norm)),
    )


def _as_batch(tensor: Tensor, dims: int) -> Tensor:
    """Add a batch dimension to a tensor of `dims` dimensions; return others unchanged."""
    return tensor[None] if tensor.dim() == dims else tensor


def _check_image_and_probs(image: Tensor, probs: Tensor) -> None:
    """Raise a ValueError unless both match: an RGB image, and class probabilities of its size on its device."""
    batch = "B, " if image.dim() == 4 else ""
    require_shape("image", image, f"[{batch}3, H, W]")
    require_shape("probs", probs, f"[{batch}C, H, W]")
    if image.shape[-3] != 3:
        raise ValueError(f"image must have 3 channels (RGB), got {image.shape[-3]}")
    if image.shape[:-3] != probs.shape[:-3]:
        raise ValueError(f"image and probs must have the same batch size, got {len(image)} and {len(probs)}")
    if image.shape[-2:] != probs.shape[-2:]:
        raise ValueError(
            f"probs is {_size(probs)} but image is {_size(image)}; both must have the same height and width"
        )
    if probs.numel() == 0:
        raise ValueError(f"probs must have at least one class and one pixel, got shape {list(probs.shape)}")
    if image.device != probs.device:
        raise ValueError(f"probs is on {probs.device} but image is on {image.device}; both must be on the same device")
    if image.is_floating_point():
        low, high = _fetch_extrema("image", image, image.amin(), image.amax()).tolist()
        _require_in_range("the smallest value of a floating-point image", low, 0, 1)
        _require_in_range("the largest value of a floating-point image", high, 0, 1)
    elif image.dtype != torch.uint8:
        raise ValueError(f"image must be uint8, or floating point in [0, 1], got {image.dtype}")


def _class_maxima(probs: Tensor) -> Tensor:
    """Return the largest probability of each class of each image, on the CPU; check all for negative values."""
    extrema = _fetch_extrema("probs", probs, probs.amin((-2, -1)), probs.amax((-2, -1)))
    _require_in_range("the smallest value of probs", float(extrema.min()), 0, inf)
    return extrema[1]


def _fetch_extrema(name: str, tensor: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return minima and maxima of a tensor on the CPU; raise a ValueError if it has values that are not finite."""
    extrema = torch.stack([low, high]).float().cpu()
    if not isfinite(extrema.sum()):  # minimum and maximum of NaN are NaN
        require_finite(name, tensor)
    return extrema


def _check_present(present: Tensor, probs: Tensor) -> Tensor:
    """Return `present` on the CPU; raise a ValueError for a wrong type or shape, or an image without any class."""
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
    """Raise a ValueError for a value outside [low, high]."""
    if not low <= value <= high:
        allowed = f"at least {low:g}" if high == inf else f"from {low:g} to {high:g}"
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _size(tensor: Tensor) -> str:
    """Format height and width for an error message."""
    return f"{tensor.shape[-2]}x{tensor.shape[-1]}"
