"""One picture through the network at several scales, plain and mirrored, and the merge of what it said each time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.inference.multiscale import merge_scales
from tagseg.inference.settings import InferenceSettings
from tagseg.models.cam import CAM
from tagseg.models.network import SMALLEST_SIDE, Network, enlarge


@dataclass(frozen=True)
class _View:
    """The masks of one scale and flip at the network's own resolution, [1 + C, h, w], and what they are masks of."""

    masks: Tensor
    padded: tuple[int, int]
    size: tuple[int, int]
    mirrored: bool


@dataclass(frozen=True)
class Look:
    """What the network says of one picture over all scales and flips.

    The masks stay small, one for every few pixels, until it is known which classes are kept: enlarging each mask alone
    gives the same, and most classes are not in a picture.

    Attributes:
        scores: the largest score of each class after the sigmoid, [C].
        size: the picture's height and width.
    """

    scores: Tensor
    size: tuple[int, int]
    _views: tuple[_View, ...]
    _settings: InferenceSettings

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        return sum(view.masks.numel() for view in self._views)

    def merge(self, classes: Sequence[int]) -> Tensor:
        """The merged masks of the background and of these classes (counted from 0), [1 + K, H, W]."""
        planes = [0, *(1 + k for k in classes)]
        full = [
            enlarge(view.masks[planes][None], view.padded)[0, :, : view.size[0], : view.size[1]] for view in self._views
        ]
        merged = merge_scales(
            full,
            self.size,
            flipped=[view.mirrored for view in self._views],
            background_power=self._settings.background_power,
        )
        if self._settings.background is not None:
            merged[0] = self._settings.background
        return merged


def look(network: Network, pictures: Tensor, settings: InferenceSettings, *, half: bool = False) -> list[Look]:
    """Show pictures of one size to the network.

    Args:
        network: in evaluation mode.
        pictures: RGB, uint8 [B, 3, H, W], on the network's device.
        settings: which scales and flips.
        half: compute in bfloat16 where that is safe.
    """
    height, width = pictures.shape[-2:]
    views: list[list[_View]] = [[] for _ in pictures]
    scores: list[Tensor] = []
    # The masks of CAM are divided by their maximum at full size, so they cannot be enlarged later.
    full_size = isinstance(network, CAM)
    for scale in settings.scales:
        x = network.normalise(resize(pictures, scale) / 255)
        size = (x.shape[-2], x.shape[-1])
        missing = [max(0, SMALLEST_SIDE - side) for side in size]
        for mirrored in (False, True) if settings.flip else (False,):
            shown = F.pad(x.flip(-1) if mirrored else x, (0, missing[1], 0, missing[0]), mode="replicate")
            with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=half):
                said = network(shown, full_size=full_size)
            scores.append(said.scores.sigmoid())
            padded = (shown.shape[-2], shown.shape[-1])
            for own, masks in zip(views, said.masks, strict=True):
                own.append(_View(masks, padded, size, mirrored))
    best = torch.stack(scores).amax(0)
    return [Look(row, (height, width), tuple(own), settings) for row, own in zip(best, views, strict=True)]


def resize(pictures: Tensor, scale: float) -> Tensor:
    """Enlarge or reduce pictures as PIL does (bicubic, smoothed when reduced, whole levels), float 0 to 255."""
    height, width = (max(1, round(side * scale)) for side in pictures.shape[-2:])
    floats = pictures.float()
    if (height, width) == tuple(pictures.shape[-2:]):
        return floats
    return F.interpolate(floats, (height, width), mode="bicubic", antialias=True).round_().clamp_(0, 255)
