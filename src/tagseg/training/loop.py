"""The training loop, on whatever accelerate runs: a CPU, a GPU, many GPUs, many machines.

tagseg train photos.csv --out runs/photos
accelerate launch --num_processes 8 -m tagseg train photos.csv --out runs/photos
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from timm.layers import convert_sync_batchnorm  # type: ignore[attr-defined]
from torch.utils.data import DataLoader

from tagseg._triton import can_compile
from tagseg.data.dataset import ImageDataset
from tagseg.errors import Interrupted
from tagseg.models import Network, save_model
from tagseg.models.files import MODEL_FILE
from tagseg.training.augment import TrainingImages, ValidationImages, finish, seed_for
from tagseg.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from tagseg.training.display import Display
from tagseg.training.journal import Journal
from tagseg.training.objective import Losses, Tags, objective
from tagseg.training.processes import train_on_cpu
from tagseg.training.recipe import PseudoLabelSettings, Recipe, TrainingSettings
from tagseg.training.sampling import Schedule
from tagseg.training.validation import Validation, validate

STEPS_BETWEEN_LOGS = 10
STEPS_WORTH_COMPILING = 2000
Measure = Callable[[Network], dict[str, float]]


def fit(
    network: Network,
    recipe: Recipe,
    train: ImageDataset,
    validation: ImageDataset,
    out: Path,
    *,
    workers: int = 0,
    checkpoint_steps: int = 500,
    measure: Measure | None = None,
    on_epoch: Callable[[Network, int], None] | None = None,
    notes: Mapping[str, str] | None = None,
    stop_after: int | None = None,
) -> Progress:
    """Train a network, or go on where an earlier call stopped.

    Args:
        network: with its starting weights.
        recipe: the settings.
        train: the images to learn from, with their tags.
        validation: images held out, whose tags say how far the network is.
        out: the run's folder.
        workers: processes that read images.
        checkpoint_steps: steps between checkpoints; there is one after every epoch too.
        measure: further numbers of the network after each epoch, for the journal; never used to choose.
        on_epoch: called with the network and the epoch's number, for example to draw images.
        notes: for the model's file and the checkpoint: how to use the network.
        stop_after: stop as if interrupted after this step.

    Returns:
        Where the run stands at its end.
    """
    settings = recipe.training
    AcceleratorState._reset_state()  # an earlier run of this process may have had another precision
    accelerator = Accelerator(
        cpu=train_on_cpu(),
        mixed_precision=_precision(settings.precision),
        gradient_accumulation_steps=settings.gradient_accumulation,
    )
    device = accelerator.device
    network.to(memory_format=torch.channels_last)  # the layout that convolutions are fastest in, on CPU and GPU alike
    optimiser = torch.optim.SGD(
        network.parameter_groups(settings.lr, weight_decay=settings.weight_decay),
        lr=settings.lr,
        momentum=settings.momentum,
        fused=device.type == "cuda",
    )
    progress = load_checkpoint(out, network, optimiser) or Progress()
    progress.sessions += 1
    schedule = Schedule(
        len(train),
        settings.batch_size,
        accumulate=settings.gradient_accumulation,
        epochs=settings.epochs,
        seed=settings.seed,
        processes=accelerator.num_processes,
        process=accelerator.process_index,
    )
    schedule.start = progress.step
    images = TrainingImages(train, recipe.transforms, settings.seed)
    batches = iter(
        DataLoader(
            images,
            batch_sampler=schedule,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            worker_init_fn=_leave_signals_to_the_main_process,
        )
    )
    held_out = DataLoader(
        ValidationImages(validation, recipe.transforms),
        recipe.validation.batch_size,
        num_workers=workers,
        worker_init_fn=_leave_signals_to_the_main_process,
    )
    if accelerator.num_processes > 1 and device.type == "cuda":
        convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]  # a process's share of a batch is too small for statistics of its own
    network.train()
    torch.backends.cudnn.benchmark = True  # pays because all crops have one size
    model: torch.nn.Module = network
    if _compiles(settings, schedule.steps - progress.step, device):
        # A graph of all launches takes them off the host, which is else what a GPU waits for; it needs one process and
        # gradients that do not outlive a step.
        alone = accelerator.num_processes == settings.gradient_accumulation == 1 and device.type == "cuda"
        model = compiled(network, graph=alone)
    model, prepared = accelerator.prepare(model, optimiser)
    if progress.scale and accelerator.scaler:
        accelerator.scaler.load_state_dict(progress.scale)

    main = accelerator.is_main_process
    journal = Journal(out, step=progress.step) if main else None
    if journal and progress.step < schedule.steps:
        journal.write("session", progress.step, session=progress.sessions, processes=accelerator.num_processes)
    began, seconds_before, logged = time.monotonic(), progress.seconds, _Average()
    with (
        _stop_signals() as stop,
        Display(schedule.steps, start=progress.step, quiet=not main) as display,
    ):
        if progress.step == schedule.steps:
            display.say(f"this run is complete: {schedule.steps} steps; to train anew, choose another folder")
        elif progress.step:
            display.say(f"going on from step {progress.step} of {schedule.steps}")
        while progress.step < schedule.steps:
            epoch = progress.step // schedule.steps_per_epoch  # from 0
            supervision = _supervision(recipe, epoch)
            # What is random in the network depends on the step alone, so that it need not be saved.
            torch.manual_seed(seed_for(settings.seed, progress.step, accelerator.process_index))
            for _ in range(settings.gradient_accumulation):
                crops, draws, tags = next(batches)
                with accelerator.accumulate(model):
                    with accelerator.autocast():
                        losses = objective(
                            model,
                            finish(crops, draws, recipe.transforms, device),
                            Tags.of(tags, device),
                            normalise=network.normalise,
                            settings=supervision,
                        )
                    accelerator.backward(losses.total)
                    prepared.step()
                    prepared.zero_grad()
                logged.add(losses)
            progress.step += 1
            progress.seconds = seconds_before + time.monotonic() - began

            ends_epoch = progress.step % schedule.steps_per_epoch == 0
            if progress.step % STEPS_BETWEEN_LOGS == 0 or ends_epoch:
                numbers = logged.take(settings.batch_size / settings.gradient_accumulation)
                if not math.isfinite(numbers["loss"]):
                    raise FloatingPointError(
                        f"the loss is not finite at step {progress.step}; lower training.lr, now {settings.lr}, or "
                        "use training.precision=fp32"
                    )
                display.step(
                    progress.step,
                    epoch=epoch + 1,
                    epochs=settings.epochs,
                    numbers=_in_words(numbers, masks=supervision is not None),
                )
                if device.type == "cuda":
                    numbers["gpu_gib"] = torch.cuda.max_memory_reserved(device) / 2**30
                if journal:
                    journal.write("train", progress.step, epoch=epoch + 1, **numbers)
            if ends_epoch and main and ((epoch + 1) % recipe.validation.every == 0 or epoch + 1 == settings.epochs):
                torch.backends.cudnn.benchmark = False  # whole images have many sizes
                result = validate(network, held_out, settings=supervision, autocast=accelerator.autocast)
                if _becomes_the_model(result, progress, recipe, epoch + 1):
                    progress.kept_epoch, progress.kept_loss = epoch + 1, result.loss
                    save_model(network, out / MODEL_FILE, notes=notes)
                reached = {"loss": result.loss, "mAP": 100 * result.average_precision}
                reached |= measure(network) if measure else {}
                assert journal is not None
                journal.write(
                    "validation", progress.step, epoch=epoch + 1, classification=result.classification, **reached
                )
                words = ", ".join(
                    f"{name} {value:{'.3f' if name == 'loss' else '.1f'}}" for name, value in reached.items()
                )
                display.say(f"epoch {epoch + 1}: validation {words}")
                if on_epoch:
                    on_epoch(network, epoch + 1)
                network.train()
                torch.backends.cudnn.benchmark = True
            accelerator.wait_for_everyone()
            asked_to_stop = _agree(accelerator, stop.asked) or progress.step == stop_after
            if main and (ends_epoch or asked_to_stop or progress.step % checkpoint_steps == 0):
                progress.scale = accelerator.scaler.state_dict() if accelerator.scaler else None
                save_checkpoint(out, network, optimiser, progress, notes=notes)
            if asked_to_stop and progress.step < schedule.steps:
                raise Interrupted(
                    f"stopped at step {progress.step} of {schedule.steps}; the same command goes on from there"
                )
    torch.backends.cudnn.benchmark = False
    return progress


def _supervision(recipe: Recipe, epoch: int) -> PseudoLabelSettings | None:
    """The masks' own supervision starts after the first epochs; the CAM baseline has none."""
    if recipe.model.method == "cam" or epoch < recipe.training.classification_epochs:
        return None
    return recipe.pseudo_labels


def _becomes_the_model(result: Validation, progress: Progress, recipe: Recipe, epoch: int) -> bool:
    """Only an epoch that trains the masks is kept (any, if none does)."""
    epochs, first = recipe.training.epochs, recipe.training.classification_epochs
    if recipe.model.method != "cam" and epoch <= first < epochs:
        return False
    return recipe.validation.checkpoint == "last" or result.loss < progress.kept_loss


class _Average:
    """Means of the losses since they were last taken; nothing waits for the GPU until then."""

    def __init__(self) -> None:
        self._losses: list[torch.Tensor] = []
        self._since = time.monotonic()

    def add(self, losses: Losses) -> None:
        self._losses.append(torch.stack([value.detach().float() for value in losses[:4]]))

    def take(self, images_each: float) -> dict[str, float]:
        images = images_each * len(self._losses)
        total, classification, segmentation, supervised = torch.stack(self._losses).mean(0).tolist()
        seconds = time.monotonic() - self._since
        self._losses, self._since = [], time.monotonic()
        return {
            "loss": total,
            "classification": classification,
            "segmentation": segmentation,
            "supervised": supervised,
            "images_per_second": images / seconds,
        }


def _in_words(numbers: dict[str, float], *, masks: bool) -> str:
    speed = f"{numbers['images_per_second']:.0f} img/s"
    if not masks:
        return f"loss {numbers['loss']:.3f} (tags), {speed}"
    return (
        f"loss {numbers['loss']:.3f} (tags {numbers['classification']:.3f}, masks {numbers['segmentation']:.3f}), "
        f"full pseudo masks {100 * numbers['supervised']:.0f} %, {speed}"
    )


class _Stop:
    asked = False


def _agree(accelerator: Accelerator, asked: bool) -> bool:
    """Whether any process was asked to stop: all have to stop at the same step."""
    if accelerator.num_processes == 1:
        return asked
    return bool(accelerator.reduce(torch.tensor(float(asked), device=accelerator.device)).item())


def _leave_signals_to_the_main_process(_: int) -> None:
    """Keep a worker alive through a signal to the whole group: the step under way still needs its images."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def _stop_signals() -> Iterator[_Stop]:
    """Turn Ctrl-C and SIGTERM into a wish to stop after the step; a second Ctrl-C stops at once."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield stop
        return

    def ask(number: int, _: object) -> None:
        stop.asked = True
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def compiled(network: Network, *, graph: bool) -> torch.nn.Module:
    """The network for images of one size, compiled; the network itself stays as it is."""
    return torch.compile(network, dynamic=False, mode="reduce-overhead" if graph else "default")  # type: ignore[return-value]


def _compiles(settings: TrainingSettings, steps: int, device: torch.device) -> bool:
    """Compiling takes about a minute, which a short run does not win back."""
    if settings.compile == "auto":
        return can_compile(device) and steps >= STEPS_WORTH_COMPILING
    return settings.compile


def _precision(name: str) -> str:
    """Half precision by itself only where the hardware has it."""
    if name == "auto":
        return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    return "no" if name == "fp32" else name
