"""The training loop, on one CPU or GPU, many GPUs, or many machines.

tagseg train photos.csv --out runs/photos
accelerate launch --num_processes 8 -m tagseg train photos.csv --out runs/photos
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader

from tagseg._device import can_compile, explain_out_of_memory
from tagseg._files import write_text
from tagseg._hub import MODEL_FILE
from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import MaskDataset
from tagseg.errors import ConfigError, Interrupted
from tagseg.models import Network, save_model
from tagseg.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from tagseg.training.distributed import (
    StopRequest,
    accelerator as run_accelerator,
    cudnn_benchmark,
    ignore_signals,
    is_main_process,
    iterate,
    stop_signals,
)
from tagseg.training.features import FeatureCache
from tagseg.training.logging import MetricsLog, RunningMeans, RunProgress, is_validated
from tagseg.training.objective import MaskObjective, Objective, TagObjective
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
        trainer = _Trainer(
            network,
            recipe,
            (train, validation),
            out,
            accelerator,
            stop,
            stack,
            masks=masks or (None, None),
            workers=workers,
            notes=notes,
            progress=progress,
        )
        state, sampler = trainer.state, trainer.sampler
        with iterate(trainer.train_batches) as batches, trainer.display:
            while state.step < sampler.steps:
                epoch = state.step // sampler.steps_per_epoch + 1
                objective = _objective(recipe, epoch, network.config.num_classes, trainer.teacher)
                trainer.step(batches, objective)
                ends_epoch = state.step == epoch * sampler.steps_per_epoch
                trainer.log(epoch, objective, is_due=ends_epoch or state.step % STEPS_BETWEEN_LOGS == 0)
                if ends_epoch and is_validated(epoch, recipe.validation.every, settings.epochs):
                    trainer.validate(epoch, objective, measure, on_epoch)
                stops = stop.agreed(accelerator) or state.step == stop_after
                if ends_epoch or stops or state.step % checkpoint_steps == 0:
                    trainer.save()
                if stops:
                    raise Interrupted(
                        f"stopped at step {state.step} of {sampler.steps}", "run the same command again to resume"
                    )
    return state


class _Trainer:
    """The parts of a run, and what `train_network` does with them in each step.

    Attributes:
        state: State of the run.
        sampler: Batches of the whole run.
        train_batches: The batches that are left, for `step`.
        teacher: Network whose masks become pseudo labels, if it is not the one in training.
        display: Progress display.

    Args:
        network: As in `train_network`, like most of the arguments.
        recipe: Settings of the run.
        data: Training and validation images.
        out: Folder of the run.
        accelerator: Device, precision and processes of the run.
        stop: Whether the run was asked to stop.
        stack: Closes what the run needs, at its end.
        masks: Masks of the training and of the validation images.
        workers: Number of data workers.
        notes: Metadata for the model and the checkpoint.
        progress: Show the progress on stderr.
    """

    def __init__(
        self,
        network: Network,
        recipe: Recipe,
        data: tuple[ImageDataset, ImageDataset],
        out: Path,
        accelerator: Accelerator,
        stop: StopRequest,
        stack: ExitStack,
        *,
        masks: tuple[MaskDataset | None, MaskDataset | None],
        workers: int,
        notes: Mapping[str, str] | None,
        progress: bool,
    ) -> None:
        self._network, self._recipe, self._out, self._notes = network, recipe, out, notes
        self._accelerator, self._stop = accelerator, stop
        self._train, validation = data
        self._is_main, self._quiet = accelerator.is_main_process, not (accelerator.is_main_process and progress)
        settings, device = recipe.training, accelerator.device

        network.to(memory_format=torch.channels_last)  # the fastest layout of convolutions, on CPU and GPU
        network.to(device)
        self._optimizer = build_optimizer(network, settings, device)
        uses_teacher = recipe.pseudo_labels.teacher == "ema"
        has_average = settings.ema and (self._is_main or uses_teacher)
        self._average = MovingAverage(network, settings.ema) if has_average else None
        self._averaged = None if self._average is None else self._average.network
        self.teacher = self._averaged if uses_teacher else None
        self._final = network if self._averaged is None else self._averaged  # what is validated, and becomes the model

        self.state = load_checkpoint(out, network, self._optimizer, self._averaged) or TrainState()
        self.state.sessions += 1
        stop.checkpoint_step = self.state.step
        self.sampler = ResumableBatchSampler(
            len(self._train),
            settings.batch_size,
            accumulate=settings.gradient_accumulation,
            epochs=settings.epochs,
            seed=settings.seed,
            processes=accelerator.num_processes,
            process=accelerator.process_index,
        )
        self.sampler.start = self.state.step
        self.display = RunProgress(
            recipe, self.sampler.steps_per_epoch, len(validation), done=self.state.step, quiet=self._quiet
        )
        self._announce()

        self._cache = self._cache_features(stack, workers)
        train_images = TrainingImages if self._cache is None else RandomFlips
        self.train_batches = DataLoader(
            train_images(self._train, recipe.transforms, settings.seed, masks[0]),
            batch_sampler=self.sampler,
            num_workers=workers if self._cache is None else 0,
            pin_memory=device.type == "cuda",
            worker_init_fn=ignore_signals,
        )
        self._validation_batches = DataLoader(
            ValidationImages(validation, recipe.transforms, masks[1]),
            recipe.validation.batch_size,
            num_workers=workers,
            worker_init_fn=ignore_signals,
        )

        self._schedule = Schedule(self._optimizer, settings, self.sampler.steps)
        self._model, self._prepared_optimizer = accelerator.prepare(self._training_model(), self._optimizer)
        if self.state.scale and accelerator.scaler:
            accelerator.scaler.load_state_dict(self.state.scale)

        self._metrics = MetricsLog(out, step=self.state.step) if self._is_main else None
        if self._metrics and self.state.step < self.sampler.steps:
            processes = accelerator.num_processes
            self._metrics.write("session", self.state.step, session=self.state.sessions, processes=processes)
        self._start_time, self._seconds_before = time.monotonic(), self.state.seconds
        self._means = RunningMeans(accelerator, self.state.losses)

    def _announce(self) -> None:
        """Say what the run will do."""
        step, steps = self.state.step, self.sampler.steps
        if step == steps:
            self.display.print(f"This run is complete: {steps} steps. To train again, choose another folder.")
        elif step:
            self.display.print(f"Resuming from step {step} of {steps}")
        else:
            self.display.print(self.display.describe(len(self._train), self._recipe.training.batch_size))

    def _cache_features(self, stack: ExitStack, workers: int) -> FeatureCache | None:
        """Compute the deep maps of all training images, if they never change and there is room for them."""
        is_complete = self.state.step == self.sampler.steps
        if is_complete or not _caches_features(self._recipe, self._network, self._accelerator.num_processes):
            return None
        transforms = self._recipe.transforms
        cache = stack.enter_context(FeatureCache(self._network, flip=transforms.flip, folder=self._out))
        images = WholeImages(self._train, transforms.crop)
        return cache if cache.fill(images, workers=workers, stop=self._stop, quiet=self._quiet) else None

    def _training_model(self) -> torch.nn.Module:
        """The network in training mode, compiled if that pays."""
        settings, accelerator, network = self._recipe.training, self._accelerator, self._network
        device = accelerator.device
        if accelerator.num_processes > 1 and device.type == "cuda":
            from timm.layers import convert_sync_batchnorm  # type: ignore[attr-defined]

            # The share of a batch on one GPU is too small for batch statistics.
            convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        network.train()
        if self.teacher is not None:
            self.teacher.eval()
        if not _compiles(settings, self.sampler.steps, device):
            return network
        # A CUDA graph takes the launches off the host, which a GPU would wait for. It needs one process, and gradients
        # that do not outlive a step.
        graph = accelerator.num_processes == settings.gradient_accumulation == 1 and device.type == "cuda"
        return compile_network(network, graph=graph)

    def step(self, batches: Iterator[tuple[Tensor, Tensor, Tensor, Tensor]], objective: Objective) -> None:
        """Make one step of the optimizer."""
        state, accelerator, transforms = self.state, self._accelerator, self._recipe.transforms
        self._stop.activity = "this step, then a checkpoint is written"
        # Randomness in the network depends on the step alone, so that a checkpoint need not store its state.
        torch.manual_seed(seed_for(self._recipe.training.seed, state.step, accelerator.process_index))
        self._schedule.set_step(state.step)
        for _ in range(self._recipe.training.gradient_accumulation):
            crops, jitter_draws, targets, origins = next(batches)
            crops, deep = (crops, None) if self._cache is None else self._cache.read(origins)
            with accelerator.accumulate(self._model):
                with accelerator.autocast():
                    images = finish_batch(crops, jitter_draws, transforms, accelerator.device)
                    losses = objective.losses(
                        self._model, images, targets, normalize=self._network.normalize, deep=deep
                    )
                accelerator.backward(losses.total)
                self._prepared_optimizer.step()
                self._prepared_optimizer.zero_grad()
            self._means.add(losses)
        state.step += 1
        if self._average is not None:
            self._average.update(state.step)
        state.seconds = self._seconds_before + time.monotonic() - self._start_time

    def log(self, epoch: int, objective: Objective, *, is_due: bool) -> None:
        """Show that a step is done; if it is due, log the means of the losses since the last time."""
        text = None
        if is_due:
            self._require_finite()
            settings, device = self._recipe.training, self._accelerator.device
            metrics = self._means.take(settings.batch_size / settings.gradient_accumulation)
            speed = metrics["images_per_second"]
            text = f"{objective.describe(metrics)}, {speed:.{0 if speed >= 10 else 1}f} img/s"
            if device.type == "cuda":
                metrics["gpu_gib"] = torch.cuda.max_memory_reserved(device) / 2**30
            if self._metrics:
                self._metrics.write("train", self.state.step, epoch=epoch, **metrics)
        self.display.step(self.state.step, text)

    def validate(
        self,
        epoch: int,
        objective: Objective,
        measure: Callable[[Network], dict[str, float]] | None,
        on_epoch: Callable[[Network, int], None] | None,
    ) -> None:
        """Validate the network after an epoch, and keep it as the model if it is the best; in the main process only."""
        if self._metrics is None:
            return
        self._stop.activity = "this validation, then a checkpoint is written"
        with cudnn_benchmark(False), self.display.validation():  # `measure` runs on images of many sizes
            autocast = self._accelerator.autocast
            result = validate(self._final, self._validation_batches, objective, autocast=autocast, quiet=self._quiet)
            if _is_best(result, self.state, self._recipe, epoch):
                self.state.model_epoch, self.state.model_loss = epoch, result.loss
                save_model(self._final, self._out / MODEL_FILE, notes=self._notes)
            metrics = {"loss": result.loss, "mAP": 100 * result.average_precision}
            metrics |= measure(self._final) if measure else {}
            self._metrics.write(
                "validation", self.state.step, epoch=epoch, classification=result.classification, **metrics
            )
            text = ", ".join(
                f"{name} {value:{'.3f' if name == 'loss' else '.1f'}}"
                for name, value in metrics.items()
                if not math.isnan(value)  # no validation image has a class, or all have it
            )
            self.display.print(f"Epoch {epoch}/{self._recipe.training.epochs}: validation {text}")
            if on_epoch:
                on_epoch(self._final, epoch)
        self._network.train()

    def save(self) -> None:
        """Write a checkpoint; all processes have to call this, and the main one writes."""
        self._require_finite()
        self.state.losses = list(self._means.rows())
        if self._is_main:
            scaler = self._accelerator.scaler
            self.state.scale = scaler.state_dict() if scaler else None
            save_checkpoint(
                self._out, self._network, self._optimizer, self.state, average=self._averaged, notes=self._notes
            )
            self._stop.checkpoint_step = self.state.step

    def _require_finite(self) -> None:
        """Stop at a loss that is not finite in any process, before the weights that it spoiled reach a checkpoint.

        The names of the step's images are written to the folder of the run.
        """
        settings = self._recipe.training
        bad = self._means.first_not_finite(self.state.step, settings.gradient_accumulation)
        if bad is None:
            return
        names = [self._train.image_ids[position] for position in self.sampler.positions(bad - 1)]
        file = self._out / NOT_FINITE_FILE
        if self._is_main:
            write_text(file, "".join(f"{name}\n" for name in names))
        raise ConfigError(
            f"the loss is not finite at step {bad}, with {names[0]}"
            + (f" and {len(names) - 1} more images, see {file}" if names[1:] else ""),
            f"lower training.lr, now {settings.lr}, or use training.precision=fp32; the last checkpoint is kept",
        )


def compile_network(network: Network, *, graph: bool) -> torch.nn.Module:
    """Compile a network for images of one size; the network itself does not change.

    Args:
        network: Network to compile.
        graph: Capture a CUDA graph.
    """
    return torch.compile(network, dynamic=False, mode="reduce-overhead" if graph else "default")  # type: ignore[return-value]


def _objective(recipe: Recipe, epoch: int, num_classes: int, teacher: Network | None) -> Objective:
    """Objective of an epoch, counted from 1; the first epochs, and CAM, are trained on image-level labels alone."""
    if recipe.model.method == "supervised":
        return MaskObjective(num_classes)
    if recipe.model.method == "cam" or epoch <= recipe.training.classification_epochs:
        return TagObjective(None)
    return TagObjective(recipe.pseudo_labels, teacher)


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
