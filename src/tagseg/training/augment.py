"""Training pictures (Sec. 4.1): a crop of nearly the whole picture, a flip, colour jitter.

What happens to a picture depends on the seed, the epoch and the picture alone, never on which worker or process reads
it or on what was read before: that is what lets a run stop anywhere and go on to the same end.
"""

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode, v2

from tagseg.data.dataset import ImageTags
from tagseg.training.recipe import PictureSettings


def seed_for(*numbers: int) -> int:
    """One seed from several numbers, such that neighbouring numbers give unrelated seeds."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ (number + 0x9E3779B9)) * 0xBF58476D1CE4E5B9) % 2**64
        state ^= state >> 31
    return state % 2**63


class TrainingPictures(Dataset[tuple[Tensor, Tensor]]):
    """Augmented pictures, uint8 [3, crop, crop], and their tags; indexed by (epoch, position)."""

    def __init__(self, data: ImageTags, settings: PictureSettings, seed: int) -> None:
        self.data = data
        self.seed = seed
        steps: list[v2.Transform] = [
            v2.RandomResizedCrop(
                settings.crop, scale=settings.area, interpolation=InterpolationMode.BICUBIC, antialias=True
            )
        ]
        if settings.flip:
            steps.append(v2.RandomHorizontalFlip())
        if settings.brightness or settings.contrast or settings.saturation or settings.hue:
            steps.append(v2.ColorJitter(settings.brightness, settings.contrast, settings.saturation, settings.hue))
        self.transform = v2.Compose(steps)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: tuple[int, int]) -> tuple[Tensor, Tensor]:
        epoch, position = index
        picture, tags = self.data[position]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(self.seed, epoch, position))
            return self.transform(picture), tags


class ValidationPictures(Dataset[tuple[Tensor, Tensor]]):
    """The same pictures in every epoch: whole, at the crop's size."""

    def __init__(self, data: ImageTags, settings: PictureSettings) -> None:
        self.data = data
        self.transform = v2.Resize(
            (settings.crop, settings.crop), interpolation=InterpolationMode.BICUBIC, antialias=True
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        picture, tags = self.data[index]
        return self.transform(picture), tags
