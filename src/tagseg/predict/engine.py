"""Run a network on images of one working shape: TTA, class selection, merging, CRF, masks at the images' own size.

The memory is bounded: an image is resized to the working size, or tiled if that is `native`, and its masks are enlarged
to its own size in bands.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from tagseg._device import explain_out_of_memory, multiplies_bfloat16, pick_device, to_device
from tagseg.data.images import Pixels
from tagseg.errors import ConfigError, unknown_name
from tagseg.models.base import Network
from tagseg.predict.confidence import Confidence
from tagseg.predict.onnx_network import OnnxNetwork
from tagseg.predict.optimize import optimize_network
from tagseg.predict.resize import (
    ClassMask,
    MaskWriter,
    Shape,
    resize_image,
    resize_in_bands,
    resize_masks,
    shape_within,
    working_shape,
)
from tagseg.predict.settings import ClassRule, InferenceSettings
from tagseg.predict.tiling import SMALLEST_TILE, Span, TileGrid, TileStitcher, plan_tiles
from tagseg.predict.tta import TTAOutput, run_tta
from tagseg.refine.crf import dense_crf

PREDICTED_TAGS = "predicted-tags"
TRUE_TAGS = "true-tags"
MAX_PIXELS = 2048 * 2048

_PRECISIONS = ("auto", "float32", "bfloat16")
_MAX_TTA_VALUES = 2**28  # 1 GiB of masks at the network's stride; tiles beyond it run a second time
_MAX_PROB_VALUES = 2**25  # 128 MiB of merged masks
_MAX_CRF_PIXELS = 2**21  # the CRF of a larger image runs on a reduced one: it takes some 500 bytes a pixel
_IF_OUT_OF_MEMORY = "lower {batch_size} or {size}"
_CRF_GAUSSIAN_SXY, _CRF_BILATERAL_SXY = 3.0, 80.0  # the paper's, in pixels of the working size

# Protocol -> rule that selects the classes of an image.
ClassRules = Mapping[str, ClassRule]
OnTile = Callable[[int, int], None]  # gets the number of finished steps of a tiled image, and of all its steps
_Job = tuple[int, tuple[int, ...]]  # position in the batch, and classes to keep


@dataclass(frozen=True)
class ImageSegmentation:
    """Mask of an image under one protocol.

    Attributes:
        classes: Classes that were allowed, counted from 0 without the background.
        mask: 0 for the background, k + 1 for class k, [H, W].
        probs: Merged masks of the background and these classes, [1 + K, h, w], if they were kept; at the working size,
            or at the size of the CRF.
        confidence: Confidence of the mask, if it was wanted.
    """

    classes: tuple[int, ...]
    mask: ClassMask
    probs: Tensor | None
    confidence: Confidence | None = None


@dataclass(frozen=True)
class ImageResult:
    """Result for one image.

    Attributes:
        scores: Score of each class, after the sigmoid.
        segmentations: A mask for each protocol.
        settings: Settings that were used; the scales of very large images are reduced for CAM.
    """

    scores: list[float]
    segmentations: dict[str, ImageSegmentation]
    settings: InferenceSettings


class Engine:
    """A network on a device.

    Attributes:
        network: The network that was given.
        runner: Copy of it that predicts; for an exported network that itself.
        bfloat16: Whether the runner uses autocast to bfloat16.
        batch_size: Images of usual size that are best run together: several fill a GPU, one a CPU.
        num_in_flight: Batches that are best launched before the first is finished: a GPU computes while the next one
            is prepared.

    Args:
        network: Moved to the device, otherwise unchanged, so that a network in training can be evaluated.
        device: A torch device by name; `auto` stays on the GPU of the network, or takes the first one if any.
        precision: `float32`, `bfloat16` (autocast), or `auto`: bfloat16 on devices that multiply it natively.
        max_pixels: Most pixels of one forward pass.
        optimize: Whether to use the fast paths of `tagseg.predict.optimize`, or the names of those to use.
    """

    def __init__(
        self,
        network: Network,
        *,
        device: str = "auto",
        precision: str = "auto",
        max_pixels: int = MAX_PIXELS,
        optimize: bool | Collection[str] = True,
    ) -> None:
        if network.config.in_channels not in (1, 3):
            raise ConfigError(
                f"this network takes {network.config.in_channels} channels, but images are RGB (3) or gray (1); use "
                "load_model and prepare its input yourself"
            )
        if precision not in _PRECISIONS:
            raise unknown_name("precision", precision, _PRECISIONS)
        if max_pixels < SMALLEST_TILE**2:
            raise ConfigError(
                f"max_pixels must be at least {SMALLEST_TILE**2}, a tile of {SMALLEST_TILE} x {SMALLEST_TILE}, got "
                f"{max_pixels}"
            )
        self.max_pixels = max_pixels
        if isinstance(network, OnnxNetwork):
            self.device, self.bfloat16 = network.check_device(device, precision), False
            self.network: Network = network
            self.runner: Network = network
        else:
            current = next(network.parameters()).device
            self.device = current if device == "auto" and current.type != "cpu" else pick_device(device)
            self.network = network.to(self.device)
            self.bfloat16 = precision == "bfloat16" or (precision == "auto" and multiplies_bfloat16(self.device))
            self.runner = optimize_network(self.network, bfloat16=self.bfloat16, passes=optimize)
        on_gpu = self.device.type == "cuda"
        self.batch_size = 8 if on_gpu else 1
        self.num_in_flight = 2 if on_gpu else 0
        # CAM divides a mask by its maximum over the whole image, which a tile does not know: large images are reduced.
        self._uses_tiles = network.config.method != "cam"

    def max_batch(self, height: int, width: int) -> int:
        """Most images of this working shape that one batch may have."""
        return max(1, self.max_pixels // (height * width))

    def runs_alone(self, height: int, width: int) -> bool:
        """Whether an image of this working shape must not be in flight beside others: two could exceed the memory."""
        return self.max_batch(height, width) == 1

    @explain_out_of_memory(_IF_OUT_OF_MEMORY)
    def submit(
        self,
        images: Sequence[Pixels],
        shapes: Sequence[Shape],
        rules: Sequence[ClassRules],
        settings: InferenceSettings,
        *,
        crf: bool = False,
        keep_probs: bool | None = None,
        confidence: bool = False,
        on_tile: OnTile | None = None,
    ) -> "PendingBatch":
        """Launch the network on images of one working shape, without waiting for a GPU.

        Args:
            images: RGB, [H, W, 3] each, at most `max_batch` of them.
            shapes: Height and width that their masks get: their own, or those of the images that they are reduced from.
            rules: For each image, the rule of each protocol.
            settings: Working size, scales, flips and how they are merged.
            crf: Refine by a dense CRF.
            keep_probs: Keep the merged masks; by default unless the image is tiled.
            confidence: Also compute the masks' confidence.
            on_tile: Called as the tiles of a tiled image are done: each one is run, and later merged.
        """
        height, width = working_shape(shapes[0], settings.size)
        settings = self._fit_scales(settings, height * width)
        max_tile_pixels = round(self.max_pixels / max(settings.scales) ** 2)
        grid = plan_tiles(height, width, max_tile_pixels if self._uses_tiles else height * width)
        batch = torch.from_numpy(np.stack([resize_image(image, (height, width)) for image in images]))
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            batch = batch.pin_memory()  # without it the copy would wait for the batch before
        batch = batch.to(self.device, non_blocking=on_gpu).permute(0, 3, 1, 2)
        keep_probs = len(grid) == 1 if keep_probs is None else keep_probs
        return PendingBatch(
            self,
            images,
            shapes,
            batch,
            grid,
            rules,
            settings,
            crf=crf,
            keep_probs=keep_probs,
            confidence=confidence,
            on_tile=on_tile,
        )

    def run_tta(self, tiles: Tensor, settings: InferenceSettings) -> TTAOutput:
        """Run the network on tiles at every scale."""
        return run_tta(self.runner, tiles, settings, max_pixels=self.max_pixels, bfloat16=self.bfloat16)

    def _fit_scales(self, settings: InferenceSettings, pixels: int) -> InferenceSettings:
        """Reduce the scales until an image fits; only for large images and CAM."""
        largest = pixels * max(settings.scales) ** 2
        if self._uses_tiles or largest <= self.max_pixels:
            return settings
        factor = (self.max_pixels / largest) ** 0.5
        return replace(settings, scales=tuple(scale * factor for scale in settings.scales))


class PendingBatch:
    """A batch whose forward passes are launched and, on a GPU, may still be running.

    Launching and finishing are separate so that a GPU computes one batch while the host prepares the next and merges
    the last. Finishing runs on a stream of its own and waits for nothing that was launched later.
    """

    @torch.inference_mode()
    def __init__(
        self,
        engine: Engine,
        images: Sequence[Pixels],
        shapes: Sequence[Shape],
        batch: Tensor,
        grid: TileGrid,
        rules: Sequence[ClassRules],
        settings: InferenceSettings,
        *,
        crf: bool,
        keep_probs: bool,
        confidence: bool,
        on_tile: OnTile | None,
    ) -> None:
        self._on_tile = on_tile if len(grid) > 1 else None
        self._engine, self._images, self._shapes, self._rules = engine, images, shapes, rules
        self._batch, self._grid = batch, grid
        self._settings, self._crf, self._keep_probs, self._confidence = settings, crf, keep_probs, confidence
        self._outputs: dict[tuple[Span, Span], TTAOutput] = {}
        scores, num_values = None, 0
        for number, tile in enumerate(grid):
            self._report(number)
            output = engine.run_tta(_crop(batch, tile), settings)
            scores = output.scores if scores is None else scores.maximum(output.scores)
            if num_values + output.numel <= _MAX_TTA_VALUES:
                self._outputs[tile] = output
                num_values += output.numel
        assert scores is not None
        self._scores, self._event = scores, None
        if scores.is_cuda:
            self._scores = scores.to("cpu", non_blocking=True)
            self._event = torch.cuda.current_stream(scores.device).record_event()

    @explain_out_of_memory(_IF_OUT_OF_MEMORY)
    @torch.inference_mode()
    def results(self) -> list[ImageResult]:
        """Wait for the network, then select classes, merge and refine; one result for each image."""
        if self._event is None:
            return self._finish()
        self._event.synchronize()
        with torch.cuda.stream(_finishing_stream(self._batch.device)):
            return self._finish()

    def _finish(self) -> list[ImageResult]:
        scores: list[list[float]] = self._scores.tolist()
        selected_classes = [
            {protocol: rule.select(image_scores) for protocol, rule in rules.items()}
            for rules, image_scores in zip(self._rules, scores, strict=True)
        ]
        # Protocols that keep the same classes of an image share one segmentation.
        jobs = dict.fromkeys(
            (index, classes)
            for index, image_classes in enumerate(selected_classes)
            for classes in image_classes.values()
        )
        segmentations = self._segment(list(jobs))
        return [
            ImageResult(
                image_scores,
                {protocol: segmentations[index, classes] for protocol, classes in image_classes.items()},
                self._settings,
            )
            for index, (image_scores, image_classes) in enumerate(zip(scores, selected_classes, strict=True))
        ]

    def _segment(self, jobs: list[_Job]) -> dict[_Job, ImageSegmentation]:
        """Segment images of the batch, each with the classes to keep."""
        groups = [
            _JobGroup(
                group,
                self._images,
                self._shapes,
                self._grid,
                self._batch.device,
                dtype=np.uint8 if self._scores.shape[1] <= 255 else np.uint16,
                crf=self._crf,
                keep_probs=self._keep_probs,
                confidence=self._confidence,
            )
            for group in self._split(jobs)
        ]
        for number, tile in enumerate(self._grid, start=len(self._grid)):
            self._report(number)
            pixels = _crop(self._batch, tile)
            output = self._outputs.get(tile) or self._engine.run_tta(pixels, self._settings)
            for group in groups:
                group.add(pixels, output)
        return {job: segmentation for group in groups for job, segmentation in group.finish()}

    def _report(self, num_done: int) -> None:
        if self._on_tile is not None:
            self._on_tile(num_done, 2 * len(self._grid))

    def _split(self, jobs: list[_Job]) -> list[list[_Job]]:
        """Split the jobs into groups whose images have one size and whose masks fit into the memory."""
        jobs_by_shape: dict[Shape, list[_Job]] = defaultdict(list)
        for job in jobs:
            jobs_by_shape[self._shapes[job[0]]].append(job)
        groups = []
        for (height, width), shape_jobs in jobs_by_shape.items():
            crf_height, crf_width = shape_within((height, width), _MAX_CRF_PIXELS) if self._crf else (0, 0)
            num_pixels = max(self._grid.size[0] * self._grid.size[1], crf_height * crf_width)
            num_channels = 1 + max(len(classes) for _, classes in shape_jobs)
            length = max(1, _MAX_PROB_VALUES // (num_channels * num_pixels))
            groups += [shape_jobs[start : start + length] for start in range(0, len(shape_jobs), length)]
        return groups


class _JobGroup:
    """Images of one size that are segmented together, each with the classes to keep.

    Masks of images at their own size are written as their tiles come. Others are collected at the working size, refined
    at their own size, or at about two megapixels if that is more, and enlarged in bands.

    Args:
        jobs: Position in the batch, and classes to keep.
        images: Images of the batch at their own size, or reduced.
        shapes: Their own height and width.
        grid: Tiles at the working size.
        device: Device of the network's output.
        dtype: Type of the masks.
        crf: Refine by a dense CRF.
        keep_probs: Keep the merged masks.
        confidence: Also compute the masks' confidence.
    """

    def __init__(
        self,
        jobs: list[_Job],
        images: Sequence[Pixels],
        shapes: Sequence[Shape],
        grid: TileGrid,
        device: torch.device,
        *,
        dtype: type,
        crf: bool,
        keep_probs: bool,
        confidence: bool,
    ) -> None:
        self._jobs, self._images = jobs, [images[index] for index, _ in jobs]
        self._crf, self._keep_probs = crf, keep_probs
        self._shape = shapes[jobs[0][0]]
        self._is_resized = self._shape != grid.size
        longest = max(len(classes) for _, classes in jobs)
        channels = [[0, *(k + 1 for k in classes), *[-1] * (longest - len(classes))] for _, classes in jobs]
        self._indices = to_device([index for index, _ in jobs], torch.int64, device)
        self._channels = to_device(channels, torch.int64, device)
        self._present = torch.tensor(channels) >= 0
        self._stitcher = TileStitcher(grid, device)
        self._writer = MaskWriter(self._channels.clamp(min=0), self._shape, dtype=dtype, confidence=confidence)
        self._rows: list[Tensor] = []  # merged masks that are kept or still to be resized

    def add(self, pixels: Tensor, output: TTAOutput) -> None:
        """Add the next tile of the batch: its pixels and the network's output."""
        merged = output.merge(self._indices, self._channels)
        if self._crf and not self._is_resized:
            merged = _refine(pixels[self._indices], merged, self._present, factor=1.0)
        if (finished := self._stitcher.add(merged)) is None:
            return
        top, rows = finished
        if self._is_resized:
            self._rows.append(rows)
            return
        self._writer.write(top, rows)
        if self._keep_probs:
            self._rows.append(rows.cpu())

    def finish(self) -> Iterator[tuple[_Job, ImageSegmentation]]:
        """Segmentations of all jobs, after the last tile."""
        probs = torch.cat(self._rows, 2) if self._rows else None
        if self._is_resized and probs is not None and probs.shape[1] > 1:  # otherwise all is background
            if self._crf:
                probs = self._refine_resized(probs)
            for top, rows in resize_in_bands(probs, self._shape):
                self._writer.write(top, rows)
        cpu_probs = probs.cpu() if probs is not None and self._keep_probs else None
        confidences = self._writer.confidences([1 + len(classes) for _, classes in self._jobs])
        outputs = zip(self._jobs, self._writer.masks, confidences, strict=True)
        for row, (job, mask, confidence) in enumerate(outputs):
            job_probs = None if cpu_probs is None else cpu_probs[row, : 1 + len(job[1])].clone()
            # A copy, so that the masks of a batch are freed one by one; but a single one may be large.
            yield job, ImageSegmentation(job[1], mask if len(self._jobs) == 1 else mask.copy(), job_probs, confidence)

    def _refine_resized(self, probs: Tensor) -> Tensor:
        """Refine merged masks at the images' own size, or at a smaller one if the CRF would need too much memory."""
        shape = shape_within(self._shape, _MAX_CRF_PIXELS)
        pixels = torch.from_numpy(np.stack([resize_image(image, shape) for image in self._images]))
        factor = max(shape) / max(probs.shape[-2:])
        return _refine(
            pixels.to(probs.device).permute(0, 3, 1, 2), resize_masks(probs, shape), self._present, factor=factor
        )


def _refine(pixels: Tensor, merged: Tensor, present: Tensor, *, factor: float) -> Tensor:
    """Refine masks by the dense CRF; images without a class have no border to refine.

    Args:
        pixels: Images, uint8 [R, 3, H, W].
        merged: Merged masks, [R, K, H, W].
        present: Which of their channels exist, [R, K], on the CPU.
        factor: Size of the pixels' image as a multiple of the working size. The kernels grow with it, so that the
            result does not depend on the resolution.
    """
    refine = partial(dense_crf, gaussian_sxy=factor * _CRF_GAUSSIAN_SXY, bilateral_sxy=factor * _CRF_BILATERAL_SXY)
    has_classes = present[:, 1:].any(1)
    if has_classes.all():  # the usual case needs no copies
        return refine(pixels, merged, present=present)
    if not has_classes.any():
        return merged
    rows = to_device(has_classes.nonzero().flatten().tolist(), torch.int64, merged.device)
    return merged.index_copy_(0, rows, refine(pixels[rows], merged[rows], present=present[has_classes]))


def _crop(images: Tensor, tile: tuple[Span, Span]) -> Tensor:
    (top, bottom), (left, right) = tile
    return images[..., top:bottom, left:right]


@cache
def _finishing_stream(device: torch.device) -> torch.cuda.Stream:
    """One high-priority stream for all predictors of a GPU: each stream keeps memory of its own."""
    return torch.cuda.Stream(device, priority=-1)
