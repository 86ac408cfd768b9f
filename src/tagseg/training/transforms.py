"""Transforms of training and validation images (Sec. 4.1): crop, flip, color jitter.

The transform of an image depends only on the seed, the epoch and the image, not on the worker or process that reads
it. That makes a resumed run bit-identical.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import IGNORE_LABEL, MaskDataset
from tagseg.training.recipe import TransformSettings

_GRAY = 114  # of padding


def seed_for(*numbers: int) -> int:
    """Combine numbers into one seed; neighboring numbers give unrelated seeds."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ (number + 0x9E3779B9)) * 0xBF58476D1CE4E5B9) % 2**64
        state ^= state >> 31
    return state % 2**63


class TrainingImages(Dataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """Crops, uint8 [3, crop, crop], the parameters of their color jitter, [2, 4], their targets and their origin.

    The target of an image is its labels, [C], or with `masks` its mask, transformed as the image is, [crop, crop]. The
    origin is the position of the image and whether it is mirrored, int64 [2]. The index is (epoch, position).

    Args:
        data: Images with their labels.
        settings: Settings of the transforms.
        seed: Random seed of the run.
        masks: Masks of the images, if they are the targets.
    """

    def __init__(
        self, data: ImageDataset, settings: TransformSettings, seed: int, masks: MaskDataset | None = None
    ) -> None:
        self.data = data
        self.masks = masks
        self.settings = settings
        self.seed = seed
        self.transform: v2.Transform = (
            v2.RandomResizedCrop(
                settings.crop, scale=settings.area, interpolation=InterpolationMode.BICUBIC, antialias=True
            )
            if settings.scale is None
            else RandomScaledCrop(settings.crop, settings.scale)
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        epoch, position = index
        # Resizing is fastest on channels-last memory, which files decode to.
        image = torch.from_numpy(self.data.images.read(position)).permute(2, 0, 1)
        mask = None if self.masks is None else _mask_of(self.masks, self.data.image_ids[position], image)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(self.seed, epoch, position))
            parts = [self.transform(image)] if mask is None else self.transform(image, mask)
            is_mirrored = self.settings.flip and bool(torch.rand(1) < 0.5)
            crop, *masks = (part.flip(-1) if is_mirrored else part for part in parts)
            target = masks[0].as_subclass(Tensor) if masks else self.data.labels[position]
            return crop, draw_jitter(self.settings), target, torch.tensor([position, is_mirrored])


class RandomFlips(Dataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """Targets and origins as of `TrainingImages`, for whole images that a `FeatureCache` has; the rest is empty.

    Args:
        data: Images with their labels.
        settings: Settings of the transforms, of which only flips are used.
        seed: Random seed of the run.
        masks: Masks of the images, if they are the targets.
    """

    def __init__(
        self, data: ImageDataset, settings: TransformSettings, seed: int, masks: MaskDataset | None = None
    ) -> None:
        self.data, self.settings, self.seed, self.masks = data, settings, seed, masks

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        epoch, position = index
        generator = torch.Generator().manual_seed(seed_for(self.seed, epoch, position))
        is_mirrored = self.settings.flip and bool(torch.rand(1, generator=generator) < 0.5)
        if self.masks is None:
            target = self.data.labels[position]
        else:
            mask = torch.from_numpy(self.masks[self.data.image_ids[position]])[None]
            side = [self.settings.crop, self.settings.crop]
            target = F.resize(mask, side, interpolation=InterpolationMode.NEAREST)[0]
            target = target.flip(-1) if is_mirrored else target
        return torch.empty(0), torch.empty(0), target, torch.tensor([position, is_mirrored])


class WholeImages(Dataset[Tensor]):
    """Whole images resized to the crop, uint8 [3, crop, crop], for a `FeatureCache`."""

    def __init__(self, data: ImageDataset, crop: int) -> None:
        self.data, self.crop = data, crop

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Tensor:
        image = torch.from_numpy(self.data.images.read(index)).permute(2, 0, 1)
        side = [self.crop, self.crop]
        return F.resize(image, side, interpolation=InterpolationMode.BICUBIC, antialias=True)  # type: ignore[no-any-return]


class ValidationImages(Dataset[tuple[Tensor, Tensor]]):
    """Whole images resized to the crop, uint8 [3, crop, crop], and their targets, as in `TrainingImages`."""

    def __init__(self, data: ImageDataset, settings: TransformSettings, masks: MaskDataset | None = None) -> None:
        self.data = data
        self.masks = masks
        self.transform = v2.Resize(
            (settings.crop, settings.crop), interpolation=InterpolationMode.BICUBIC, antialias=True
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, labels = self.data[index]
        if self.masks is None:
            return self.transform(image), labels
        image, mask = self.transform(image, _mask_of(self.masks, self.data.image_ids[index], image))
        return image, mask.as_subclass(Tensor)


class RandomScaledCrop(v2.Transform):  # type: ignore[misc]  # torchvision has no types
    """Scale an image at random, keeping its aspect ratio, and crop a square; what exceeds the image is padding.

    The padding of images is gray, that of masks is ignored in the loss.

    Args:
        crop: Side of the crop.
        scale: Range of the longest side of the scaled image, in crops.
    """

    def __init__(self, crop: int, scale: tuple[float, float]) -> None:
        super().__init__()
        self.crop, self.scale = crop, scale

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the window of the image and its place in the crop."""
        height, width = v2.query_size(flat_inputs)
        low, high = self.scale
        factor = (low + (high - low) * torch.rand(()).item()) * self.crop / max(height, width)
        (top, rows, above, scaled_rows), (left, columns, before, scaled_columns) = (
            self._span(side, factor) for side in (height, width)
        )
        after = [self.crop - scaled_columns - before, self.crop - scaled_rows - above]
        return {
            "window": {"top": top, "left": left, "height": rows, "width": columns},
            "size": [scaled_rows, scaled_columns],
            "padding": [before, above, *after],
        }

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Crop an image or a mask."""
        is_mask = isinstance(inpt, tv_tensors.Mask)
        interpolation = InterpolationMode.NEAREST if is_mask else InterpolationMode.BICUBIC
        resized = F.resized_crop(inpt, **params["window"], size=params["size"], interpolation=interpolation)
        return F.pad(resized, params["padding"], fill=IGNORE_LABEL if is_mask else _GRAY)

    def _span(self, side: int, factor: float) -> tuple[int, int, int, int]:
        """Start and length of the window in one direction, its start in the crop, and its length there."""
        length = min(side, max(1, round(self.crop / factor)))
        scaled = self.crop if length < side else min(self.crop, max(1, round(side * factor)))
        start = int(torch.randint(side - length + 1, ()))
        return start, length, int(torch.randint(self.crop - scaled + 1, ())), scaled


def _mask_of(masks: MaskDataset, image_id: str, image: Tensor) -> tv_tensors.Mask:
    """Mask of an image, [3, H, W], at its size."""
    mask = tv_tensors.Mask(torch.from_numpy(masks[image_id]))
    if mask.shape != image.shape[1:]:
        mask = F.resize(mask[None], list(image.shape[1:]), interpolation=InterpolationMode.NEAREST)[0]
    return tv_tensors.Mask(mask)


def finish_batch(crops: Tensor, draws: Tensor, settings: TransformSettings, device: torch.device) -> Tensor:
    """Finish a batch of `TrainingImages` on the device: RGB in [0, 1] with color jitter, [B, 3, H, W].

    Jitter runs on whole batches here because it took workers longer than decoding.
    """
    images = crops.to(device, non_blocking=True).float().div_(255)
    if settings.jitters:
        images = jitter(images, draws)
    return images.contiguous(memory_format=torch.channels_last)


def draw_jitter(settings: TransformSettings) -> Tensor:
    """Draw the order of the four jitter operations and their factors for one image, float32 [2, 4].

    Uses torch's default generator.
    """
    spread = torch.tensor([settings.brightness, settings.contrast, settings.saturation, settings.hue])
    center, lowest = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 0.0, -0.5])
    low = (center - spread).maximum(lowest)
    return torch.stack([torch.randperm(4).float(), low + (center + spread - low) * torch.rand(4)])


def jitter(images: Tensor, draws: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue, each image by its own factors and in its own order.

    The operations are torchvision's, without rounding to uint8 in between.

    Args:
        images: RGB in [0, 1], [B, 3, H, W]; changed in place.
        draws: Results of `draw_jitter`, [B, 2, 4], on the CPU, so that nothing waits for a GPU.
    """
    orders, factors = draws[:, 0].long(), draws[:, 1].to(images.device, non_blocking=True)
    for step in range(4):
        for index, operation in enumerate(_OPERATIONS):
            members = (orders[:, step] == index).nonzero()[:, 0].to(images.device, non_blocking=True)
            if len(members):
                images[members] = operation(images[members], factors[members, index, None, None, None])
    return images


def _brightness(images: Tensor, factors: Tensor) -> Tensor:
    return (images * factors).clamp_(0, 1)


def _contrast(images: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(_gray(images).mean((2, 3), keepdim=True), images, factors).clamp_(0, 1)


def _saturation(images: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(_gray(images), images, factors).clamp_(0, 1)


def _hue(images: Tensor, turns: Tensor) -> Tensor:
    """Shift the hue by a share of the color circle."""
    red, green, blue = images.split(1, 1)
    value = images.amax(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    divisor = torch.where(chroma == 0, 1, chroma)
    sixths = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    # A channel is at its highest for two sixths of the color circle, at its lowest for two, and linear in between.
    offsets = torch.arange(5, 0, -2, device=images.device)[:, None, None]  # 5, 3, 1: red, green, blue
    position = (offsets + sixths + 6 * turns) % 6
    shifted: Tensor = value - chroma * torch.minimum(position, 4 - position).clamp_(0, 1)
    return shifted


def _gray(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, 1)
    gray: Tensor = 0.2989 * red + 0.587 * green + 0.114 * blue
    return gray


_OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (_brightness, _contrast, _saturation, _hue)
