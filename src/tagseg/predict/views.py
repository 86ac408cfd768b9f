"""Images through the network at several scales, plain and mirrored, and the merge of what it said each time."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.models.cam import CAM
from tagseg.models.network import SMALLEST_SIDE, Network, enlarge
from tagseg.predict.multiscale import merge_views
from tagseg.predict.settings import InferenceSettings


@dataclass(frozen=True)
class _View:
    """The masks of one scale and flip at the network's own resolution, [B, 1 + C, h, w], and what they are masks of."""

    masks: Tensor
    padded: tuple[int, int]
    size: tuple[int, int]
    mirrored: bool

    def enlarged(self, own: tuple[Tensor, Tensor]) -> Tensor:
        """Some of the masks at the size at which the image was seen, without padding."""
        return enlarge(self.masks[own], self.padded)[..., : self.size[0], : self.size[1]]


@dataclass(frozen=True)
class Look:
    """What the network says of images of one size over all scales and flips.

    The masks stay small, one for every few pixels, until it is known which classes are kept: enlarging each mask alone
    gives the same, and most classes are not in an image.

    Attributes:
        scores: the largest score of each class after the sigmoid, [B, C].
        size: the images' height and width.
    """

    scores: Tensor
    size: tuple[int, int]
    _views: tuple[_View, ...]
    _settings: InferenceSettings

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        return sum(view.masks.numel() for view in self._views)

    def merge(self, images: Tensor, planes: Tensor) -> Tensor:
        """The merged masks of some images, each with planes of its own; an image may come several times.

        Args:
            images: which, [R].
            planes: their planes, [R, 1 + K]: first 0 for the background, then 1 + k for class k, and -1 for none, which
                gives 0 everywhere.

        Returns:
            Merged masks, [R, 1 + K, H, W].
        """
        own = (images[:, None], planes.clamp(min=0))
        merged = merge_views(
            ((view.enlarged(own), view.mirrored) for view in self._views),
            self.size,
            count=len(self._views),
            labels=planes[:, 1:] >= 0,
            background_power=self._settings.background_power,
        )
        if self._settings.background is not None:
            merged[:, 0] = self._settings.background
        return merged


def look(network: Network, images: Tensor, settings: InferenceSettings, *, max_pixels: int, half: bool = False) -> Look:
    """Show images of one size to the network; it sees those of one scale, plain and mirrored, together.

    Args:
        network: in evaluation mode, in the channels-last layout.
        images: RGB, uint8 [B, 3, H, W], on the network's device.
        settings: which scales and flips.
        max_pixels: the most pixels that the network sees at once.
        half: compute in bfloat16 where that is safe.
    """
    views: list[_View] = []
    scores: list[Tensor] = []
    # The masks of CAM are divided by their maximum at full size, so they cannot be enlarged later.
    full_size = isinstance(network, CAM)
    flips = (False, True) if settings.flip else (False,)
    for scale in settings.scales:
        x = network.normalise(resize(images, scale) / 255)
        size = (x.shape[-2], x.shape[-1])
        missing = [max(0, SMALLEST_SIDE - side) for side in size]
        shown = torch.cat([x.flip(-1) if mirrored else x for mirrored in flips])
        if any(missing):
            shown = F.pad(shown, (0, missing[1], 0, missing[0]), mode="replicate")
        shown = shown.to(memory_format=torch.channels_last)
        padded = (shown.shape[-2], shown.shape[-1])
        masks: list[Tensor] = []
        for part in shown.split(max(1, max_pixels // (padded[0] * padded[1]))):
            with torch.autocast(x.device.type, dtype=torch.bfloat16) if half else nullcontext():
                said = network(part, full_size=full_size)
            scores.append(said.scores.sigmoid())
            masks.append(said.masks)
        for mirrored, own in zip(flips, torch.cat(masks).chunk(len(flips)), strict=True):
            views.append(_View(own, padded, size, mirrored))
    best = torch.cat(scores).unflatten(0, (-1, len(images))).amax(0)
    return Look(best, (images.shape[-2], images.shape[-1]), tuple(views), settings)


def resize(images: Tensor, scale: float) -> Tensor:
    """Enlarge or reduce images as PIL does (bicubic, smoothed when reduced, whole levels), float 0 to 255."""
    height, width = (max(1, round(side * scale)) for side in images.shape[-2:])
    floats = images.float()
    if (height, width) == tuple(images.shape[-2:]):
        return floats
    return F.interpolate(floats, (height, width), mode="bicubic", antialias=True).round_().clamp_(0, 255)
