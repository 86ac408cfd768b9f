"""Test-time augmentation: an image at several scales, plain and flipped, and how their masks are merged (Sec. 4.1)."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.models.base import SMALLEST_SIDE, Network, enlarge
from tagseg.models.supervised import segmentation
from tagseg.predict.settings import BACKGROUND_POWER, InferenceSettings


def merge_scales(
    masks: Sequence[Tensor],
    size: tuple[int, int],
    *,
    flipped: Sequence[bool],
    labels: Tensor | None = None,
    background_power: float = BACKGROUND_POWER,
) -> Tensor:
    """Average the masks of an image over scales and flips.

    Args:
        masks: Masks of each scale and flip, background first, [1 + C, h, w] each at its own size and without padding;
            or [B, 1 + C, h, w] for several images of one size.
        size: Height and width of the image, and of the result.
        flipped: Which of the masks belong to the mirrored image.
        labels: Classes to keep, 0 or 1, [C] or [B, C]; all by default.
        background_power: Exponent that discounts the background; the paper's text has none, which is 1.

    Returns:
        Merged masks, [1 + C, H, W] or [B, 1 + C, H, W]. They no longer sum to 1.
    """
    if not masks:
        raise ValueError("masks is empty; give the masks of at least one scale")
    if len(masks) != len(flipped):
        raise ValueError(f"masks and flipped must have the same length, got {len(masks)} and {len(flipped)}")
    views = zip(masks, flipped, strict=True)
    return _merge_views(views, size, num_views=len(masks), labels=labels, background_power=background_power)


def _merge_views(
    views: Iterable[tuple[Tensor, bool]],
    size: tuple[int, int],
    *,
    num_views: int,
    labels: Tensor | None,
    background_power: float,
) -> Tensor:
    """`merge_scales` for masks that arrive one after the other: all of them at full size would fill the memory."""
    merged = None
    for masks, is_flipped in views:
        resized = masks if tuple(masks.shape[-2:]) == tuple(size) else _resize_masks(masks, size)
        resized = resized.flip(-1) if is_flipped else resized
        merged = resized / num_views if merged is None else merged.add_(resized, alpha=1 / num_views)
    assert merged is not None
    background, classes = merged.tensor_split([1], dim=-3)
    background.pow_(background_power)
    if labels is not None:
        classes *= labels.to(merged)[..., None, None]
    return merged


def _resize_masks(masks: Tensor, size: tuple[int, int]) -> Tensor:
    batch = masks if masks.dim() == 4 else masks[None]
    return F.interpolate(batch, size=size, mode="bilinear", align_corners=False).view(*masks.shape[:-2], *size)


@dataclass(frozen=True)
class _View:
    """Masks of one scale and flip at the network's stride, [B, 1 + C, h, w].

    Attributes:
        masks: The masks.
        padded_size: Size of the network's input.
        size: Size of the input without its padding.
        is_flipped: Whether the input was mirrored.
    """

    masks: Tensor
    padded_size: tuple[int, int]
    size: tuple[int, int]
    is_flipped: bool

    def at_input_size(self, index: tuple[Tensor, Tensor]) -> Tensor:
        """Selected masks at the size of the input, without padding."""
        return enlarge(self.masks[index], self.padded_size)[..., : self.size[0], : self.size[1]]


@dataclass(frozen=True)
class TTAOutput:
    """Class scores and masks of images of one size over all scales and flips.

    The masks stay at the network's stride until the classes to keep are known: each mask is enlarged by itself, and
    most classes do not occur in an image.

    Attributes:
        scores: Highest score of each class over scales and flips, after the sigmoid, [B, C].
        size: Height and width of the images.
    """

    scores: Tensor
    size: tuple[int, int]
    _views: tuple[_View, ...]
    _settings: InferenceSettings

    @property
    def numel(self) -> int:
        """Number of mask values that are held."""
        return sum(view.masks.numel() for view in self._views)

    def merge(self, images: Tensor, channels: Tensor) -> Tensor:
        """Merge the masks of selected images and classes; an image may be selected several times.

        Args:
            images: Positions in the batch, [R].
            channels: Mask channels of each, [R, 1 + K]: first 0 for the background, then 1 + k for class k, and -1 for
                none, which gives 0 everywhere.

        Returns:
            Merged masks, [R, 1 + K, H, W].
        """
        index = (images[:, None], channels.clamp(min=0))
        merged = _merge_views(
            ((view.at_input_size(index), view.is_flipped) for view in self._views),
            self.size,
            num_views=len(self._views),
            labels=channels[:, 1:] >= 0,
            background_power=self._settings.background_power,
        )
        if self._settings.background is not None:
            merged[:, 0] = self._settings.background
        return merged


def run_tta(
    network: Network, images: Tensor, settings: InferenceSettings, *, max_pixels: int, bfloat16: bool = False
) -> TTAOutput:
    """Run the network on images of one size at every scale; both flips of a scale share one batch.

    Args:
        network: Network in evaluation mode, in the channels-last layout.
        images: RGB, uint8 [B, 3, H, W], on the network's device.
        settings: Scales and flips.
        max_pixels: Most pixels of one forward pass.
        bfloat16: Whether to run under autocast.
    """
    views: list[_View] = []
    scores: list[Tensor] = []
    # CAM divides each mask by its maximum at full size, so its masks cannot be enlarged later.
    full_size = network.config.method == "cam"
    flips = (False, True) if settings.flip else (False,)
    for scale in settings.scales:
        x = network.normalize(resize_images(images, scale) / 255)
        size = (x.shape[-2], x.shape[-1])
        padding = [max(0, SMALLEST_SIDE - side) for side in size]
        inputs = torch.cat([x.flip(-1) if is_flipped else x for is_flipped in flips])
        if any(padding):
            inputs = F.pad(inputs, (0, padding[1], 0, padding[0]), mode="replicate")
        inputs = inputs.to(memory_format=torch.channels_last)
        padded_size = (inputs.shape[-2], inputs.shape[-1])
        masks: list[Tensor] = []
        for batch in inputs.split(max(1, max_pixels // (padded_size[0] * padded_size[1]))):
            with torch.autocast(x.device.type, dtype=torch.bfloat16) if bfloat16 else nullcontext():
                output = network(batch, full_size=full_size)
            if settings.temperature != 1:
                output = segmentation(output.logits / settings.temperature)
            scores.append(output.scores.sigmoid())
            masks.append(output.masks)
        for is_flipped, view_masks in zip(flips, torch.cat(masks).chunk(len(flips)), strict=True):
            views.append(_View(view_masks, padded_size, size, is_flipped))
    highest = torch.cat(scores).unflatten(0, (-1, len(images))).amax(0)
    return TTAOutput(highest, (images.shape[-2], images.shape[-1]), tuple(views), settings)


def resize_images(images: Tensor, scale: float) -> Tensor:
    """Resize images as PIL does: bicubic, antialiased, rounded to whole levels; float 0 to 255."""
    height, width = (max(1, round(side * scale)) for side in images.shape[-2:])
    floats = images.float()
    if (height, width) == tuple(images.shape[-2:]):
        return floats
    return F.interpolate(floats, (height, width), mode="bicubic", antialias=True).round_().clamp_(0, 255)
