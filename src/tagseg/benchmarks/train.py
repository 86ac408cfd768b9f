"""Training steps beside those of the published implementation, and the data loader's speed."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tagseg._device import can_compile, usable_cores
from tagseg.benchmarks.pamr import published_pamr
from tagseg.benchmarks.synthetic_images import photo_array, photo_like
from tagseg.benchmarks.timing import Measurements, Table, Variant, compare, growth
from tagseg.data import ImageDataset
from tagseg.data.files import FileRef, ImageFiles
from tagseg.models import Network, build_model
from tagseg.training.distributed import cudnn_benchmark
from tagseg.training.loop import compile_network
from tagseg.training.losses import classification_loss, self_supervised_loss
from tagseg.training.objective import BatchLabels, compute_losses
from tagseg.training.pseudo_labels import pseudo_labels
from tagseg.training.recipe import Recipe
from tagseg.training.sampler import ResumableBatchSampler
from tagseg.training.transforms import TrainingImages, draw_jitter, finish_batch

_CLASSES = [f"class {k}" for k in range(20)]  # as many as VOC has
_FILES = 192
_EPOCHS = 10_000  # more than the benchmark runs


def bench_train(device: torch.device) -> Measurements:
    """Measure steps of the joint phase: batch 16 in bfloat16 on a GPU, a small batch in float32 on a CPU."""
    on_gpu = device.type == "cuda"
    sizes = [("resnet50", 448, 16), ("wideresnet38", 321, 16)] if on_gpu else [("resnet50", 224, 4)]
    # Launch overhead dominates small jobs on a GPU, so its sizes are larger.
    batches, crops, batch = ([32, 64, 128], [448, 640, 896], 8) if on_gpu else ([2, 4, 8], [96, 160, 224, 320], 2)
    steps = [_compare_steps(*size, device) for size in sizes]
    return Measurements(
        (*steps, _measure_loader()),
        (
            growth("training step of ResNet-50, not compiled", "images per batch", batches,
                   lambda count: TrainingSteps("resnet50", 224, count, device).tagseg, device=device),
            growth("training step of ResNet-50, not compiled", "pixels per image", [crop**2 for crop in crops],
                   lambda pixels: TrainingSteps("resnet50", round(pixels**0.5), batch, device).tagseg, device=device),
        ),
    )  # fmt: skip


def _compare_steps(backbone: str, crop: int, batch: int, device: torch.device) -> Table:
    on_gpu = device.type == "cuda"
    forms: list[tuple[str, Callable[[TrainingSteps], Callable[[], object]], bool]] = [
        ("published form, float32", lambda steps: steps.published, False)
    ]
    if on_gpu:
        forms.append(("published form, bfloat16", lambda steps: steps.published, True))
    forms.append(("tagseg", lambda steps: steps.tagseg, on_gpu))
    if can_compile(device):
        forms.append(("tagseg, compiled", lambda steps: steps.compiled, True))
    variants = []
    for name, run, half in forms:
        steps = TrainingSteps(backbone, crop, batch, device, half=half, channels_last="tagseg" in name)
        variants.append(Variant(name, run(steps), images=batch, held_bytes=steps.held_bytes))
    return compare(
        f"Training step: {backbone}, crop {crop}, batch {batch}, classification and masks",
        variants,
        device=device,
        note="Memory includes weights, gradients and momentum. The images are already on the device; the loader is "
        "measured in the next table.",
    )


class TrainingSteps:
    """Network with a batch of images on the device, and the variants of a training step.

    Attributes:
        held_bytes: Bytes of the weights and the momentum.

    Args:
        backbone: Name of the backbone.
        crop: Side of the square images.
        batch: Number of images.
        device: Device of the network and the images.
        half: Whether to compute in bfloat16; by default on a GPU.
        channels_last: Whether the network is in channels-last layout with a fused optimizer, as `tagseg train` has it.
    """

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
        self.optimizer = torch.optim.SGD(groups, lr=5e-4, momentum=0.9, fused=channels_last and device.type == "cuda")
        self.crops = torch.stack([photo_like(crop, crop, seed=seed) for seed in range(batch)]).to(device)
        self.draws = torch.stack([draw_jitter(self.recipe.transforms) for _ in range(batch)])
        # VOC has 1.5 classes per image.
        self.labels = torch.zeros(batch, len(_CLASSES))
        for row in range(batch):
            self.labels[row, [row % 20, (7 * row) % 20][: 1 + row % 2]] = 1
        weights = sum(parameter.numel() for parameter in self.network.parameters())
        momentum = sum(parameter.numel() for group in groups for parameter in group["params"])
        self.held_bytes = 4 * (weights + momentum)

    def tagseg(self) -> None:
        """Take a step as `tagseg train` does."""
        self._step(self.network)

    @property
    def compiled(self) -> Callable[[], None]:
        """The step of `tagseg train` with a compiled network."""
        return partial(self._step, compile_network(self.network, graph=True))

    def _step(self, network: nn.Module) -> None:
        with cudnn_benchmark(True):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                losses = compute_losses(
                    network,
                    finish_batch(self.crops, self.draws, self.recipe.transforms, self.device),
                    BatchLabels.on_device(self.labels, self.device),
                    normalize=self.network.normalize,
                    settings=self.recipe.pseudo_labels,
                )
            self._update(losses.total)

    def published(self) -> None:
        """Take a step as the published implementation does: refine all masks, and compute losses at full size."""
        labels = self.labels.to(self.device)
        images = self.crops.float() / 255
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            out = self.network(self.network.normalize(images), full_size=False)
            with torch.no_grad():
                small = F.interpolate(images, size=out.masks.shape[-2:], mode="bilinear", align_corners=True)
                refined = published_pamr(small, out.masks.detach())
                pseudo = pseudo_labels(refined, labels, size=(images.shape[-2], images.shape[-1]))
            logits = F.interpolate(out.logits, size=pseudo.shape[-2:], mode="bilinear", align_corners=True)
            loss = classification_loss(out.scores, labels) + self_supervised_loss(logits, pseudo, labels)
        self._update(loss)

    def _update(self, loss: Tensor) -> None:
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def _measure_loader() -> Table:
    """Measure the data loader alone, from JPEG files."""
    workers = max(1, usable_cores() - 1)
    # Workers that read ahead may still be running when the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        files = []
        for index in range(_FILES):
            file = Path(folder) / f"{index}.jpg"
            Image.fromarray(photo_array(375, 500, seed=index % 8)).save(file, quality=90)
            files.append(FileRef(file))
        labels = torch.zeros(_FILES, len(_CLASSES))
        data = ImageDataset(_CLASSES, [str(index) for index in range(_FILES)], labels, ImageFiles(tuple(files)))
        loader = Variant("data loader", partial(next, _epochs(data, workers)), images=_FILES // 16 * 16)
        return compare(
            f"Data loader: {_FILES} JPEG files of 500x375, crop 448, {workers} worker processes",
            [loader],
            device=torch.device("cpu"),
            rounds=3,
        )


def _epochs(data: ImageDataset, workers: int) -> Iterator[None]:
    """Load the dataset once for each step of the iterator, with persistent workers."""
    schedule = ResumableBatchSampler(len(data), 16, epochs=_EPOCHS)
    loader = DataLoader(
        TrainingImages(data, Recipe.load("default").transforms, 0), batch_sampler=schedule, num_workers=workers
    )
    for step, _ in enumerate(loader, start=1):
        if step % schedule.steps_per_epoch == 0:
            yield
