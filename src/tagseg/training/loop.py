"""The training loop, on one CPU or GPU, many GPUs, or many machines.

tagseg train photos.csv --out runs/photos
accelerate launch --num_processes 8 -m tagseg train photos.csv --out runs/photos
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from tagseg._device import can_compile, explain_out_of_memory
from tagseg._files import write_atomically
from tagseg._hub import MODEL_FILE
from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import MaskDataset
from tagseg.errors import ConfigError, Interrupted
from tagseg.models import Network, save_model
from tagseg.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from tagseg.training.distributed import (
    accelerator as run_accelerator,
    cudnn_benchmark,
    ignore_signals,
    is_main_process,
    iterate,
    stop_signals,
)
from tagseg.training.features import FeatureCache
from tagseg.training.logging import MetricsLog, RunProgress, is_validated
from tagseg.training.objective import Losses, MaskObjective, Objective, TagObjective
from tagseg.training.optimizer import MovingAverage, Schedule, build_optimizer
from tagseg.training.recipe import Recipe, TrainingSettings
from tagseg.training.sampler import ResumableBatchSampler
from tagseg.training.transforms import (
    RandomFlips,
    TrainingImages,
    ValidationImages,
    WholeImages,
    finish_batch,
    seed_for,
)
from tagseg.training.validation import Validation, validate

STEPS_BETWEEN_LOGS = 10
STEPS_WORTH_COMPILING = 2000
NOT_FINITE_FILE = "not-finite.txt"  # images of the step at which a run stopped because its loss was not finite


def train_network(
    network: Network,
    recipe: Recipe,
    train: ImageDataset,
    validation: ImageDataset,
    out: Path,
    *,
    masks: tuple[MaskDataset, MaskDataset] | None = None,
    workers: int = 0,
    checkpoint_steps: int = 500,
    measure: Callable[[Network], dict[str, float]] | None = None,
    on_epoch: Callable[[Network, int], None] | None = None,
    notes: Mapping[str, str] | None = None,
    progress: bool = False,
    stop_after: int | None = None,
) -> TrainState:
    """Train a network, or resume an interrupted run.

    Args:
        network: Network with its initial weights.
        recipe: Settings of the run.
        train: Training images with their labels.
        validation: Held-out images with their labels.
        out: Folder of the run.
        masks: Masks of the training and of the validation images, for the method `supervised`.
        workers: Number of data workers.
        checkpoint_steps: Steps between checkpoints, besides the one after every epoch.
        measure: Further metrics of the network after each epoch, for the log; they never choose a checkpoint.
        on_epoch: Called with the network and the epoch's number after its validation.
        notes: Metadata for the model and the checkpoint, such as inference settings.
        progress: Show the progress on stderr.
        stop_after: Stop after this step as if interrupted.

    Returns:
        State of the run at its end.

    Raises:
        Interrupted: A signal asked the run to stop; a checkpoint was written.
    """
    settings = recipe.training
    train_masks, validation_masks = masks or (None, None)
    with (
        run_accelerator(
            precision=settings.precision, gradient_accumulation=settings.gradient_accumulation
        ) as accelerator,
        torch.random.fork_rng(devices=[accelerator.device] if accelerator.device.type == "cuda" else []),
        cudnn_benchmark(True),  # all crops have one size
        stop_signals(quiet=not is_main_process()) as stop,
        ExitStack() as stack,
        explain_out_of_memory("lower training.batch_size or transforms.crop, or raise training.gradient_accumulation"),
    ):
        device, is_main = accelerator.device, accelerator.is_main_process
        network.to(memory_format=torch.channels_last)  # the fastest layout of convolutions, on CPU and GPU
        network.to(device)
        optimizer = build_optimizer(network, settings, device)
        uses_teacher = recipe.pseudo_labels.teacher == "ema"
        average = MovingAverage(network, settings.ema) if settings.ema and (is_main or uses_teacher) else None
        teacher = average.network if average is not None and uses_teacher else None
        final = network if average is None else average.network  # what is validated, and becomes the model
        state = load_checkpoint(out, network, optimizer, None if average is None else final) or TrainState()
        state.sessions += 1
        stop.checkpoint_step = state.step
        sampler = ResumableBatchSampler(
            len(train),
            settings.batch_size,
            accumulate=settings.gradient_accumulation,
            epochs=settings.epochs,
            seed=settings.seed,
            processes=accelerator.num_processes,
            process=accelerator.process_index,
        )
        sampler.start = state.step
        quiet = not (is_main and progress)
        display = RunProgress(recipe, sampler.steps_per_epoch, len(validation), done=state.step, quiet=quiet)
        if state.step == sampler.steps:
            display.print(f"This run is complete: {sampler.steps} steps. To train again, choose another folder.")
        elif state.step:
            display.print(f"Resuming from step {state.step} of {sampler.steps}")
        else:
            display.print(display.describe(len(train), settings.batch_size))
        cache = None
        if state.step < sampler.steps and _caches_features(recipe, network, accelerator.num_processes):
            cache = stack.enter_context(FeatureCache(network, flip=recipe.transforms.flip, folder=out))
            images = WholeImages(train, recipe.transforms.crop)
            if not cache.fill(images, workers=workers, stop=stop, quiet=quiet):
                cache = None
        train_images = TrainingImages if cache is None else RandomFlips
        train_batches = DataLoader(
            train_images(train, recipe.transforms, settings.seed, train_masks),
            batch_sampler=sampler,
            num_workers=workers if cache is None else 0,
            pin_memory=device.type == "cuda",
            worker_init_fn=ignore_signals,
        )
        validation_batches = DataLoader(
            ValidationImages(validation, recipe.transforms, validation_masks),
            recipe.validation.batch_size,
            num_workers=workers,
            worker_init_fn=ignore_signals,
        )
        if accelerator.num_processes > 1 and device.type == "cuda":
            from timm.layers import convert_sync_batchnorm  # type: ignore[attr-defined]

            # The share of a batch on one GPU is too small for batch statistics.
            convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        network.train()
        if teacher is not None:
            teacher.eval()
        model: torch.nn.Module = network
        if _compiles(settings, sampler.steps, device):
            # A CUDA graph takes the launches off the host, which a GPU would wait for. It needs one process, and
            # gradients that do not outlive a step.
            graph = accelerator.num_processes == settings.gradient_accumulation == 1 and device.type == "cuda"
            model = compile_network(network, graph=graph)
        schedule = Schedule(optimizer, settings, sampler.steps)
        model, prepared_optimizer = accelerator.prepare(model, optimizer)
        if state.scale and accelerator.scaler:
            accelerator.scaler.load_state_dict(state.scale)

        metrics_log = MetricsLog(out, step=state.step) if is_main else None
        if metrics_log and state.step < sampler.steps:
            metrics_log.write("session", state.step, session=state.sessions, processes=accelerator.num_processes)
        start_time, seconds_before, running_means = (
            time.monotonic(),
            state.seconds,
            _RunningMeans(accelerator, state.losses),
        )
        with iterate(train_batches) as batches, display:
            while state.step < sampler.steps:
                stop.activity = "this step, then a checkpoint is written"
                epoch = state.step // sampler.steps_per_epoch  # from 0
                objective = _objective(recipe, epoch, network.config.num_classes, teacher)
                # Randomness in the network depends on the step alone, so that a checkpoint need not store its state.
                torch.manual_seed(seed_for(settings.seed, state.step, accelerator.process_index))
                schedule.set_step(state.step)
                for _ in range(settings.gradient_accumulation):
                    crops, jitter_draws, targets, origins = next(batches)
                    crops, deep = (crops, None) if cache is None else cache.read(origins)
                    with accelerator.accumulate(model):
                        with accelerator.autocast():
                            batch = finish_batch(crops, jitter_draws, recipe.transforms, device)
                            losses = objective.losses(model, batch, targets, normalize=network.normalize, deep=deep)
                        accelerator.backward(losses.total)
                        prepared_optimizer.step()
                        prepared_optimizer.zero_grad()
                    running_means.add(losses)
                state.step += 1
                if average is not None:
                    average.update(state.step)
                state.seconds = seconds_before + time.monotonic() - start_time

                ends_epoch = state.step % sampler.steps_per_epoch == 0
                text = None
                if state.step % STEPS_BETWEEN_LOGS == 0 or ends_epoch:
                    _require_finite(accelerator, running_means, state.step, sampler, train, recipe, out)
                    metrics = running_means.take(settings.batch_size / settings.gradient_accumulation)
                    speed = metrics["images_per_second"]
                    text = f"{objective.describe(metrics)}, {speed:.{0 if speed >= 10 else 1}f} img/s"
                    if device.type == "cuda":
                        metrics["gpu_gib"] = torch.cuda.max_memory_reserved(device) / 2**30
                    if metrics_log:
                        metrics_log.write("train", state.step, epoch=epoch + 1, **metrics)
                display.step(state.step, text)
                if ends_epoch and metrics_log and is_validated(epoch + 1, recipe.validation.every, settings.epochs):
                    stop.activity = "this validation, then a checkpoint is written"
                    # `measure` runs on images of many sizes
                    with cudnn_benchmark(False), display.validation():
                        result = validate(
                            final, validation_batches, objective, autocast=accelerator.autocast, quiet=quiet
                        )
                        if _is_best(result, state, recipe, epoch + 1):
                            state.model_epoch, state.model_loss = epoch + 1, result.loss
                            save_model(final, out / MODEL_FILE, notes=notes)
                        metrics = {"loss": result.loss, "mAP": 100 * result.average_precision}
                        metrics |= measure(final) if measure else {}
                        metrics_log.write(
                            "validation", state.step, epoch=epoch + 1, classification=result.classification, **metrics
                        )
                        text = ", ".join(
                            f"{name} {value:{'.3f' if name == 'loss' else '.1f'}}"
                            for name, value in metrics.items()
                            if not math.isnan(value)  # no validation image has a class, or all have it
                        )
                        display.print(f"Epoch {epoch + 1}/{settings.epochs}: validation {text}")
                        if on_epoch:
                            on_epoch(final, epoch + 1)
                    network.train()
                stops = stop.agreed(accelerator) or state.step == stop_after
                saves = ends_epoch or stops or state.step % checkpoint_steps == 0
                if saves:
                    _require_finite(accelerator, running_means, state.step, sampler, train, recipe, out)
                    state.losses = list(running_means.rows())
                if saves and is_main:
                    state.scale = accelerator.scaler.state_dict() if accelerator.scaler else None
                    save_checkpoint(
                        out, network, optimizer, state, average=None if average is None else final, notes=notes
                    )
                    stop.checkpoint_step = state.step
                if stops:
                    raise Interrupted(
                        f"stopped at step {state.step} of {sampler.steps}", "run the same command again to resume"
                    )
    return state


def compile_network(network: Network, *, graph: bool) -> torch.nn.Module:
    """Compile a network for images of one size; the network itself does not change.

    Args:
        network: Network to compile.
        graph: Capture a CUDA graph.
    """
    return torch.compile(network, dynamic=False, mode="reduce-overhead" if graph else "default")  # type: ignore[return-value]


def _objective(recipe: Recipe, epoch: int, num_classes: int, teacher: Network | None) -> Objective:
    """Objective of an epoch, counted from 0; the first epochs, and CAM, are trained on image-level labels alone."""
    if recipe.model.method == "supervised":
        return MaskObjective(num_classes)
    if recipe.model.method == "cam" or epoch < recipe.training.classification_epochs:
        return TagObjective(None)
    return TagObjective(recipe.pseudo_labels, teacher)


def _require_finite(
    accelerator: Accelerator,
    means: "_RunningMeans",
    step: int,
    sampler: ResumableBatchSampler,
    data: ImageDataset,
    recipe: Recipe,
    out: Path,
) -> None:
    """Stop at a loss that is not finite in any process, before the weights that it spoiled reach a checkpoint.

    The names of the step's images are written to the folder of the run.
    """
    settings = recipe.training
    bad = means.first_not_finite(step, settings.gradient_accumulation)
    if bad is None:
        return
    names = [data.image_ids[position] for position in sampler.positions(bad - 1)]
    file = out / NOT_FINITE_FILE
    if accelerator.is_main_process:
        write_atomically(file, lambda part: part.write_text("".join(f"{name}\n" for name in names), encoding="utf-8"))
    raise ConfigError(
        f"the loss is not finite at step {bad}, with {names[0]}"
        + (f" and {len(names) - 1} more images, see {file}" if names[1:] else ""),
        f"lower training.lr, now {settings.lr}, or use training.precision=fp32; the last checkpoint is kept",
    )


def _is_best(result: Validation, state: TrainState, recipe: Recipe, epoch: int) -> bool:
    """Whether the network of an epoch becomes the model; one without segmentation training does not."""
    if recipe.model.method == "single-stage" and epoch <= recipe.training.classification_epochs:
        return False
    return recipe.validation.checkpoint == "last" or result.loss < state.model_loss


def _caches_features(recipe: Recipe, network: Network, num_processes: int) -> bool:
    """Whether the deep maps of the training images are computed once: of a frozen backbone, and in one process."""
    requested = recipe.training.cache_features
    if requested is True and not network.backbone.is_frozen:
        raise ConfigError("training.cache_features needs a frozen vision transformer: set model.trainable_blocks to 0")
    return bool(requested) and network.backbone.is_frozen and recipe.transforms.only_flips and num_processes == 1


def _compiles(settings: TrainingSettings, steps: int, device: torch.device) -> bool:
    """Whether to compile; it takes about a minute, which a short run does not recover."""
    if settings.compile == "auto":
        return can_compile(device) and steps >= STEPS_WORTH_COMPILING
    return settings.compile


class _RunningMeans:
    """Means of the losses since they were last taken; until then nothing waits for the GPU.

    They are means over all processes, all of which have to call each method.

    Args:
        accelerator: Processes of the run.
        rows: Losses of batches in an earlier session of the run that have not been taken.
    """

    def __init__(self, accelerator: Accelerator, rows: list[list[float]]) -> None:
        self._accelerator = accelerator
        self._losses: list[torch.Tensor] = []
        self._earlier, self._num_resumed, self._start = list(rows), len(rows), time.monotonic()

    def add(self, losses: Losses) -> None:
        self._losses.append(torch.stack([value.detach().float() for value in losses[:4]]))

    def rows(self) -> list[list[float]]:
        """Losses of the batches since they were last taken."""
        if self._losses:
            self._earlier += self._accelerator.reduce(torch.stack(self._losses), "mean").tolist()
            self._losses = []
        return self._earlier

    def first_not_finite(self, step: int, accumulation: int) -> int | None:
        """First step with a loss that is not finite; the last batch is of `step`, which has `accumulation` batches."""
        rows = self.rows()
        bad = next((index for index, losses in enumerate(rows) if not math.isfinite(losses[0])), None)
        return None if bad is None else step - (len(rows) - 1 - bad) // accumulation

    def take(self, images_per_batch: float) -> dict[str, float]:
        rows = self.rows()
        images = images_per_batch * (len(rows) - self._num_resumed)
        total, classification, segmentation, supervised = torch.tensor(rows).mean(0).tolist()
        seconds = time.monotonic() - self._start
        self._earlier, self._num_resumed, self._start = [], 0, time.monotonic()
        return {
            "loss": total,
            "classification": classification,
            "segmentation": segmentation,
            "supervised": supervised,
            "images_per_second": images / max(seconds, 1e-9),  # a coarse clock may stand still
        }
