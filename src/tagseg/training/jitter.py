"""Colour jitter of whole batches on the network's own device, since workers took longer for it than to decode.

Brightness, contrast, saturation and hue change by random factors in a random order, both drawn for each image by
itself. The operations are those of torchvision, without its rounding to whole levels in between.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tagseg.training.recipe import TransformSettings

Operation = Callable[[Tensor, Tensor], Tensor]


def draw_jitter(settings: TransformSettings) -> Tensor:
    """What happens to one image: the order of the four operations and their factors, float32 [2, 4].

    It is drawn from torch's default generator.
    """
    spread = torch.tensor([settings.brightness, settings.contrast, settings.saturation, settings.hue])
    centre, least = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 0.0, -0.5])
    low = (centre - spread).maximum(least)
    return torch.stack([torch.randperm(4).float(), low + (centre + spread - low) * torch.rand(4)])


def jitter(images: Tensor, draws: Tensor) -> Tensor:
    """Change the colours of images.

    Args:
        images: RGB in [0, 1], [B, 3, H, W]; they are changed in place.
        draws: what `draw_jitter` gave for each, [B, 2, 4], on the CPU, so that no GPU has to be waited for.
    """
    orders, factors = draws[:, 0].long(), draws[:, 1].to(images.device, non_blocking=True)
    for step in range(4):
        for which, operation in enumerate(_OPERATIONS):
            members = (orders[:, step] == which).nonzero()[:, 0].to(images.device, non_blocking=True)
            if len(members):
                chosen = factors[members, which, None, None, None]
                images[members] = operation(images[members], chosen)
    return images


def _brightness(images: Tensor, factors: Tensor) -> Tensor:
    return (images * factors).clamp_(0, 1)


def _contrast(images: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(_grey(images).mean((2, 3), keepdim=True), images, factors).clamp_(0, 1)


def _saturation(images: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(_grey(images), images, factors).clamp_(0, 1)


def _hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the colours around the grey axis of the HSV cone by a share of the circle."""
    red, green, blue = images.split(1, 1)
    value = images.amax(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    safe = torch.where(chroma == 0, 1, chroma)
    sixths = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    # A channel is at its full value for two sixths of the circle, at its lowest for two, and on the way for the others.
    start = torch.arange(5, 0, -2, device=images.device)[:, None, None]  # 5, 3, 1: red, green, blue
    place = (start + sixths + 6 * turns) % 6
    turned: Tensor = value - chroma * torch.minimum(place, 4 - place).clamp_(0, 1)
    return turned


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, 1)
    grey: Tensor = 0.2989 * red + 0.587 * green + 0.114 * blue
    return grey


_OPERATIONS: tuple[Operation, ...] = (_brightness, _contrast, _saturation, _hue)
