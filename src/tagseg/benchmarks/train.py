"""Training steps beside those of the published form, and the loader beside what training consumes."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tagseg._device import usable_cores
from tagseg._triton import can_compile
from tagseg.benchmarks.materialised import materialised_pamr
from tagseg.benchmarks.photos import photo_like
from tagseg.benchmarks.timing import Contender, Findings, Table, compare, growth
from tagseg.data import ImageDataset
from tagseg.data.files import FileRef, ImageFiles
from tagseg.models import Network, build_model
from tagseg.training.augment import TrainingImages, finish
from tagseg.training.jitter import draw_jitter
from tagseg.training.loop import compiled
from tagseg.training.losses import classification_loss, self_supervised_loss
from tagseg.training.objective import Tags, objective
from tagseg.training.pseudo import pseudo_labels
from tagseg.training.recipe import Recipe
from tagseg.training.sampling import Schedule

_CLASSES = [f"class {k}" for k in range(20)]  # as many as VOC has
_FILES = 192


def bench_train(device: torch.device) -> Findings:
    """Steps of the joint phase, batch 16 in bfloat16 on a GPU and a small batch in float32 on a CPU."""
    on_gpu = device.type == "cuda"
    sizes = [("resnet50", 448, 16), ("wideresnet38", 321, 16)] if on_gpu else [("resnet50", 224, 4)]
    # On a GPU what is small takes as long as its launches, which says nothing of how the cost grows.
    batches, crops, batch = ([32, 64, 128], [448, 640, 896], 8) if on_gpu else ([2, 4, 8], [96, 160, 224, 320], 2)
    steps = [_compare_steps(*size, device) for size in sizes]
    return Findings(
        (*steps, _compare_readers()),
        (
            growth("a step of ResNet-50, uncompiled", "images a batch", batches,
                   lambda count: TrainingSteps("resnet50", 224, count, device).fast, device=device),
            growth("a step of ResNet-50, uncompiled", "pixels an image", [crop**2 for crop in crops],
                   lambda pixels: TrainingSteps("resnet50", round(pixels**0.5), batch, device).fast, device=device),
        ),
    )  # fmt: skip


def _compare_steps(backbone: str, crop: int, batch: int, device: torch.device) -> Table:
    contenders = []
    forms: list[tuple[str, Callable[[TrainingSteps], Callable[[], object]], bool]] = [
        ("published form, float32", lambda steps: steps.published, False)
    ]
    if device.type == "cuda":
        forms.append(("published form, bfloat16", lambda steps: steps.published, True))
    forms.append(("tagseg", lambda steps: steps.fast, device.type == "cuda"))
    if can_compile(device):
        forms.append(("tagseg, compiled", lambda steps: steps.compiled, True))
    for name, run, half in forms:
        steps = TrainingSteps(backbone, crop, batch, device, half=half, channels_last="tagseg" in name)
        contenders.append(Contender(name, run(steps), images=batch, held=steps.held))
    return compare(
        f"A step of training: {backbone}, crop {crop}, batch {batch}, tags and masks",
        contenders,
        device=device,
        note="Memory: all that the step needs, with weights, gradients and momentum. The images are on the device; "
        "what reading them costs is the next table.",
    )


class TrainingSteps:
    """A network with a batch of images on the device, and ways to take a step."""

    def __init__(
        self,
        backbone: str,
        crop: int,
        batch: int,
        device: torch.device,
        *,
        half: bool | None = None,
        channels_last: bool = True,
    ) -> None:
        torch.manual_seed(0)
        self.device, self.half = device, device.type == "cuda" if half is None else half
        self.recipe = Recipe.load("default")
        self.network: Network = build_model(backbone, _CLASSES, pretrained=False, finetune=True).to(device).train()
        if channels_last:
            self.network.to(memory_format=torch.channels_last)
        groups = self.network.parameter_groups(5e-4)
        self.training = torch.optim.SGD(groups, lr=5e-4, momentum=0.9, fused=channels_last and device.type == "cuda")
        self.crops = torch.stack([photo_like(crop, crop, seed=seed) for seed in range(batch)]).to(device)
        self.draws = torch.stack([draw_jitter(self.recipe.transforms) for _ in range(batch)])
        # VOC has 1.5 classes an image.
        self.tags = torch.zeros(batch, len(_CLASSES))
        for row in range(batch):
            self.tags[row, [row % 20, (7 * row) % 20][: 1 + row % 2]] = 1
        weights = sum(parameter.numel() for parameter in self.network.parameters())
        self.held = 4 * (weights + sum(p.numel() for group in groups for p in group["params"]))  # and the momentum

    def fast(self) -> None:
        """As `tagseg train` does it."""
        self._step(self.network)

    @property
    def compiled(self) -> Callable[[], None]:
        return partial(self._step, compiled(self.network, graph=True))

    def _step(self, network: nn.Module) -> None:
        torch.backends.cudnn.benchmark = True
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            losses = objective(
                network,
                finish(self.crops, self.draws, self.recipe.transforms, self.device),
                Tags.of(self.tags, self.device),
                normalise=self.network.normalise,
                settings=self.recipe.pseudo_labels,
            )
        self._learn(losses.total)

    def published(self) -> None:
        """As the published implementation does it: all masks refined with all neighbours, losses at full size."""
        torch.backends.cudnn.benchmark = False
        tags = self.tags.to(self.device)
        images = self.crops.float() / 255
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            out = self.network(self.network.normalise(images), full_size=False)
            with torch.no_grad():
                small = F.interpolate(images, size=out.masks.shape[-2:], mode="bilinear", align_corners=True)
                refined = materialised_pamr(small, out.masks.detach())
                pseudo = pseudo_labels(refined, tags, size=(images.shape[-2], images.shape[-1]))
            enlarged = F.interpolate(out.logits, size=pseudo.shape[-2:], mode="bilinear", align_corners=True)
            loss = classification_loss(out.scores, tags) + self_supervised_loss(enlarged, pseudo, tags)
        self._learn(loss)

    def _learn(self, loss: Tensor) -> None:
        loss.backward()
        self.training.step()
        self.training.zero_grad()


def _compare_readers() -> Table:
    """The loader alone, from JPEG files."""
    workers = max(1, usable_cores() - 1)
    # Workers that read ahead may still be writing when all is measured.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        files = []
        for index in range(_FILES):
            file = Path(folder) / f"{index}.jpg"
            pixels = photo_like(375, 500, seed=index % 8).permute(1, 2, 0).numpy()
            Image.fromarray(np.ascontiguousarray(pixels)).save(file, quality=90)
            files.append(FileRef(file))
        tags = torch.zeros(_FILES, len(_CLASSES))
        plain = ImageDataset(_CLASSES, [str(index) for index in range(_FILES)], tags, ImageFiles(tuple(files)))
        epochs = 10_000  # more than anyone will ask for
        reader = Contender("loader", partial(next, _epochs(plain, epochs, workers)), images=_FILES // 16 * 16)
        return compare(
            f"Reading {_FILES} JPEG files of 500 x 375 for training: crop 448, {workers} worker processes",
            [reader],
            device=torch.device("cpu"),
            rounds=3,
        )


def _epochs(data: ImageDataset, epochs: int, workers: int) -> Iterator[None]:
    """Go through the data once with each step of the iterator, with the same workers all along."""
    schedule = Schedule(len(data), 16, epochs=epochs)
    loader = DataLoader(
        TrainingImages(data, Recipe.load("default").transforms, 0), batch_sampler=schedule, num_workers=workers
    )
    for step, _ in enumerate(loader, start=1):
        if step % schedule.steps_per_epoch == 0:
            yield
