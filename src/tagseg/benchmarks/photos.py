"""Images to measure on that look like photographs to an algorithm: smooth regions, edges, fine texture."""

import torch
import torch.nn.functional as F
from torch import Tensor


def photo_like(height: int, width: int, *, seed: int = 0) -> Tensor:
    """A generated image, uint8 [3, H, W]: coloured regions with soft light on them, and noise with a 1/f spectrum."""
    generator = torch.Generator().manual_seed(seed)
    regions = torch.randn(1, 8, 5, 6, generator=generator)
    region = F.interpolate(regions, size=(height, width), mode="bicubic")[0].argmax(0)
    colours = torch.rand(8, 3, generator=generator)
    light = F.interpolate(torch.randn(1, 1, 3, 3, generator=generator), size=(height, width), mode="bicubic")[0]
    texture = torch.zeros(3, height, width)
    for octave in range(1, 7):
        size = (max(2, height >> octave), max(2, width >> octave))
        noise = torch.randn(1, 3, *size, generator=generator)
        texture += F.interpolate(noise, size=(height, width), mode="bilinear")[0] * 2.0**octave
    image = colours[region].movedim(-1, 0) + 0.1 * light + 0.0015 * texture
    return image.clamp(0, 1).mul(255).round().to(torch.uint8)
