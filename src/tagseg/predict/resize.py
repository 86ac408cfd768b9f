"""The working size: images are resized to it for the network, and masks return from it to the images' own size."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tagseg.data.images import Pixels
from tagseg.predict.confidence import Confidence, class_shares
from tagseg.predict.settings import WorkingSize

ClassMask = NDArray[np.uint8] | NDArray[np.uint16]  # [H, W]: 0 is background, k is the k-th class
Shape = tuple[int, int]  # height and width

Value = TypeVar("Value", bound=np.generic)

_BAND_VALUES = 2**21  # of the masks that are resized at a time: 8 MiB, which the caches hold


def scaled_shape(shape: Sequence[int], factor: float) -> Shape:
    """Height and width of a shape times a factor, at least 1."""
    return max(1, round(shape[0] * factor)), max(1, round(shape[1] * factor))


def working_shape(shape: Sequence[int], size: WorkingSize) -> Shape:
    """Height and width at which the network sees an image of a shape: the longest side is the working size."""
    return scaled_shape(shape, size / max(shape[:2]) if isinstance(size, int) else 1)


def shape_within(shape: Shape, max_pixels: int) -> Shape:
    """The shape itself, or reduced to about `max_pixels`."""
    num_pixels = shape[0] * shape[1]
    return shape if num_pixels <= max_pixels else scaled_shape(shape, (max_pixels / num_pixels) ** 0.5)


def resize_image(image: Pixels, shape: Shape) -> Pixels:
    """Resize an image as PIL does: bicubic, antialiased."""
    if image.shape[:2] == shape:
        return image
    channels = torch.from_numpy(image).permute(2, 0, 1)[None]
    resized = F.interpolate(channels, shape, mode="bicubic", antialias=True)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())


def resize_nearest(values: NDArray[Value], shape: Sequence[int]) -> NDArray[Value]:
    """Resize a map of classes, [H, W], without interpolation."""
    rows, columns = (np.arange(new) * old // new for new, old in zip(shape, values.shape, strict=True))
    resized: NDArray[Value] = values[rows[:, None], columns]
    return resized


def resize_masks(masks: Tensor, shape: Shape) -> Tensor:
    """Resize masks, [R, K, h, w], bilinearly; `resize_in_bands` gives the same values, a few rows at a time."""
    if tuple(masks.shape[-2:]) == tuple(shape):
        return masks
    return torch.cat([rows for _, rows in resize_in_bands(masks, shape)], 2)


def resize_in_bands(masks: Tensor, shape: Shape) -> Iterator[tuple[int, Tensor]]:
    """Resize masks, [R, K, h, w], bilinearly, in bands that bound the memory.

    Yields:
        The first row of a band, and the band, [R, K, rows, W].
    """
    height, width = shape
    position = (torch.arange(height, dtype=torch.float64) + 0.5) * (masks.shape[2] / height) - 0.5
    position = position.clamp(0, masks.shape[2] - 1)
    above = position.long()
    below = (above + 1).clamp(max=masks.shape[2] - 1)
    share = (position - above)[:, None].to(masks)
    above, below = above.to(masks.device), below.to(masks.device)
    step = max(1, _BAND_VALUES // (masks.shape[0] * masks.shape[1] * max(width, masks.shape[3])))
    for top in range(0, height, step):
        rows = slice(top, top + step)
        band = torch.lerp(masks[:, :, above[rows]], masks[:, :, below[rows]], share[rows])
        yield top, F.interpolate(band, (band.shape[2], width), mode="bilinear", align_corners=False)


class MaskWriter:
    """Class masks of images of one size, written a few rows at a time.

    Attributes:
        masks: Class value of the strongest channel in each pixel, [R, H, W].

    Args:
        values: Class value of each channel, background first, [R, K], on the channels' device.
        shape: Height and width of the images.
        dtype: Type of the masks.
        confidence: Also compute their confidence.
    """

    def __init__(self, values: Tensor, shape: Shape, *, dtype: type, confidence: bool) -> None:
        self.masks: ClassMask = np.zeros((len(values), *shape), dtype=dtype)
        self._confidences = np.full(self.masks.shape, 255, dtype=np.uint8) if confidence else None
        self._areas = torch.zeros(values.shape, device=values.device)  # sum of each channel's shares
        self._values = values.to(torch.uint8 if dtype == np.uint8 else torch.int32)

    def write(self, top: int, rows: Tensor) -> None:
        """Write the classes of rows, given their channels [R, K, rows, W]."""
        strongest = rows.max(1).indices  # argmax takes ten times as long on a CPU
        values = self._values.gather(1, strongest.flatten(1)).view_as(strongest)
        self.masks[:, top : top + rows.shape[2]] = values.cpu().numpy()
        if self._confidences is not None:
            shares = class_shares(rows)
            self._areas += shares.sum((2, 3))
            levels = shares.amax(1).mul_(255).round_().to(torch.uint8)
            self._confidences[:, top : top + rows.shape[2]] = levels.cpu().numpy()

    def confidences(self, num_channels: Sequence[int]) -> list[Confidence | None]:
        """Confidence of each mask, given the number of channels that it has; None if it was not wanted."""
        if self._confidences is None:
            return [None] * len(num_channels)
        is_single = len(num_channels) == 1  # as in the masks: a copy of each of several
        rows = zip(self._confidences, self._areas.tolist(), num_channels, strict=True)
        return [
            Confidence(pixels if is_single else pixels.copy(), tuple(areas[:count])) for pixels, areas, count in rows
        ]
