"""Training images (Sec. 4.1): a crop of nearly the whole image, a flip, and what colour jitter is to be applied.

What happens to an image depends on the seed, the epoch and the image alone, never on which worker or process reads
it or on what was read before: that is what lets a run stop anywhere and go on to the same end.
"""

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode, v2

from tagseg.data.dataset import ImageDataset
from tagseg.training.jitter import draw_jitter, jitter
from tagseg.training.recipe import TransformSettings


def seed_for(*numbers: int) -> int:
    """One seed from several numbers, such that neighbouring numbers give unrelated seeds."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ (number + 0x9E3779B9)) * 0xBF58476D1CE4E5B9) % 2**64
        state ^= state >> 31
    return state % 2**63


class TrainingImages(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Crops, uint8 [3, crop, crop], what their colours are to go through, [2, 4], and their tags.

    The index is (epoch, position).
    """

    def __init__(self, data: ImageDataset, settings: TransformSettings, seed: int) -> None:
        self.data = data
        self.settings = settings
        self.seed = seed
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(
                    settings.crop, scale=settings.area, interpolation=InterpolationMode.BICUBIC, antialias=True
                ),
                v2.RandomHorizontalFlip(0.5 if settings.flip else 0.0),
            ]
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        epoch, position = index
        # Colours side by side, as files have them, are what resizing is fastest on.
        image = torch.from_numpy(self.data.images.read(position)).permute(2, 0, 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(self.seed, epoch, position))
            return self.transform(image), draw_jitter(self.settings), self.data.labels[position]


def finish(crops: Tensor, draws: Tensor, settings: TransformSettings, device: torch.device) -> Tensor:
    """What is left to do to a batch of `TrainingImages` where the network is: RGB in [0, 1], [B, 3, H, W]."""
    images = crops.to(device, non_blocking=True).float().div_(255)
    if settings.jitters:
        images = jitter(images, draws)
    return images.contiguous(memory_format=torch.channels_last)


class ValidationImages(Dataset[tuple[Tensor, Tensor]]):
    """The same images in every epoch: whole, at the crop's size."""

    def __init__(self, data: ImageDataset, settings: TransformSettings) -> None:
        self.data = data
        self.transform = v2.Resize(
            (settings.crop, settings.crop), interpolation=InterpolationMode.BICUBIC, antialias=True
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, tags = self.data[index]
        return self.transform(image), tags
