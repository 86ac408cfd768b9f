"""Generated images to measure on: textured like photographs, and with the sizes of VOC's images."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tagseg.data.images import Pixels

_LONGEST_SIDE, _SHORTEST_SIDE = 500, 281
COMMON_SIZES = ((375, 500), (500, 375), (333, 500), (500, 333))  # half of VOC's images, as height and width


def photo_like(height: int, width: int, *, seed: int = 0) -> Tensor:
    """Generate an image with smooth regions, edges and fine texture, as photographs have.

    Args:
        height: Height in pixels.
        width: Width in pixels.
        seed: Random seed.

    Returns:
        The image, uint8 [3, H, W]: colored regions under soft light, with noise of a 1/f spectrum.
    """
    generator = torch.Generator().manual_seed(seed)
    regions = torch.randn(1, 8, 5, 6, generator=generator)
    region = F.interpolate(regions, size=(height, width), mode="bicubic")[0].argmax(0)
    colors = torch.rand(8, 3, generator=generator)
    light = F.interpolate(torch.randn(1, 1, 3, 3, generator=generator), size=(height, width), mode="bicubic")[0]
    texture = torch.zeros(3, height, width)
    for octave in range(1, 7):
        size = (max(2, height >> octave), max(2, width >> octave))
        noise = torch.randn(1, 3, *size, generator=generator)
        texture += F.interpolate(noise, size=(height, width), mode="bilinear")[0] * 2.0**octave
    image = colors[region].movedim(-1, 0) + 0.1 * light + 0.0015 * texture
    return image.clamp(0, 1).mul(255).round().to(torch.uint8)


def photo_array(height: int, width: int, *, seed: int = 0) -> Pixels:
    """Generate the image of `photo_like` as an array, uint8 [H, W, 3]."""
    return np.ascontiguousarray(photo_like(height, width, seed=seed).permute(1, 2, 0).numpy())


def voc_sizes(count: int) -> list[tuple[int, int]]:
    """Draw image sizes as VOC has them: half are common ones, the others have a random shorter side.

    Args:
        count: Number of sizes.

    Returns:
        Height and width of each image, in random order that is the same every time; the longer side is always 500.
    """
    generator = random.Random(0)
    sizes = [generator.choice(COMMON_SIZES) for _ in range(count // 2)]
    for _ in range(count - len(sizes)):
        shorter = generator.randint(_SHORTEST_SIDE, _LONGEST_SIDE)
        sizes.append((shorter, _LONGEST_SIDE) if generator.random() < 0.5 else (_LONGEST_SIDE, shorter))
    generator.shuffle(sizes)
    return sizes
