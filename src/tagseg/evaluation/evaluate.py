"""Evaluate masks against the ground truth, under both protocols at once."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tagseg._progress import track
from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import Mask, MaskDataset, positions_with_masks
from tagseg.evaluation.metrics import ConfusionMatrix
from tagseg.evaluation.result import Evaluation
from tagseg.models.base import Network
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS, ClassRules, ImageSegmentation
from tagseg.predict.pipeline import Sample, read_ahead, run_pipeline
from tagseg.predict.predictor import Predictor
from tagseg.predict.resize import ClassMask, resize_masks
from tagseg.predict.settings import FixedClasses

PROTOCOLS = (PREDICTED_TAGS, TRUE_TAGS)


def evaluate(
    model: Predictor | Network,
    data: ImageDataset,
    masks: MaskDataset,
    *,
    tta: bool = False,
    crf: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Evaluate a model on images with ground-truth masks; the network runs once per image for both protocols.

    Pixels of value 255 are ignored. Where a mask does not have the size of its image, the prediction is resized to it.

    Args:
        model: A predictor, or a network, which is then used with the paper's settings.
        data: Images and their tags, with the model's classes in the model's order.
        masks: Ground truth, opened with the same arguments; images without a mask are left out and counted.
        tta: Test-time augmentation, as in the paper.
        crf: Refine by a dense CRF, for each protocol separately.
        batch_size: Images of one size that run together; by default what suits the device.
        progress: Show a progress bar.
    """
    predictor = as_predictor(model)
    start = time.monotonic()
    num_classes = 1 + len(predictor.classes)
    threshold_rule = predictor.settings.threshold_rule(len(predictor.classes))
    evaluated_images = segment_with_masks(
        predictor,
        data,
        masks,
        lambda index: {PREDICTED_TAGS: threshold_rule, TRUE_TAGS: labels_rule(data.labels[index])},
        tta=tta,
        crf=crf,
        batch_size=batch_size,
        progress=progress,
    )
    confusion = {protocol: ConfusionMatrix(num_classes) for protocol in PROTOCOLS}
    # Count pixels in threads: the main thread has to keep a GPU busy.
    for counts in read_ahead(partial(_confusion_matrices, num_classes), evaluated_images):
        confusion = {protocol: matrix + counts[protocol] for protocol, matrix in confusion.items()}
    num_images = len(images_with_masks(predictor, data, masks))
    return Evaluation(
        class_names=predictor.classes,
        confusion=confusion,
        images=num_images,
        without_masks=len(data) - num_images,
        settings=predictor.settings.for_tta(tta),
        crf=crf,
        model=predictor.description,
        seconds=time.monotonic() - start,
        device=_device_name(predictor.engine.device),
    )


@dataclass(frozen=True)
class EvaluatedImage:
    """Predicted masks of an image under each protocol, and its ground truth."""

    segmentations: dict[str, ImageSegmentation]
    ground_truth: Mask


def segment_with_masks(
    predictor: Predictor,
    data: ImageDataset,
    masks: MaskDataset,
    rules: Callable[[int], ClassRules],
    *,
    tta: bool,
    crf: bool,
    keep_probs: bool = False,
    batch_size: int | None = None,
    progress: bool,
) -> Iterator[EvaluatedImage]:
    """Segment all images that have a ground-truth mask.

    Args:
        predictor: Model.
        data: Images and their tags.
        masks: Ground truth.
        rules: For the image at an index, the rule of each protocol.
        tta: Test-time augmentation.
        crf: Refine by a dense CRF.
        keep_probs: Keep the merged masks of every image; otherwise only where the ground truth has another size.
        batch_size: Images of one size that run together; by default what suits the device.
        progress: Show a progress bar.
    """
    indices = images_with_masks(predictor, data, masks)

    def read(index: int) -> Sample[Mask]:
        image, ground_truth = data.images.read(index), masks[data.image_ids[index]]
        return Sample(ground_truth, image, rules(index), keep_probs or image.shape[:2] != ground_truth.shape)

    samples = read_ahead(read, indices, size=lambda sample: sample.image.nbytes + sample.key.nbytes)
    tracked = track(samples, "Evaluating, image", len(indices), quiet=not progress)
    settings = predictor.settings.for_tta(tta)
    for sample, result in run_pipeline(predictor.engine, tracked, settings, crf=crf, batch_size=batch_size):
        yield EvaluatedImage(result.segmentations, sample.key)


def as_predictor(model: Predictor | Network) -> Predictor:
    """Return the predictor itself, or a network as a predictor with the paper's settings."""
    return model if isinstance(model, Predictor) else Predictor(model)


def images_with_masks(predictor: Predictor, data: ImageDataset, masks: MaskDataset) -> list[int]:
    """Positions of the images that have a mask; classes of another order or name are refused."""
    predictor.check_classes("images' tags", data.classes)
    predictor.check_classes("masks", masks.classes)
    return positions_with_masks(data, masks)


def labels_rule(labels: Tensor | Sequence[float]) -> FixedClasses:
    """Rule that keeps the classes of an image's labels, [C]."""
    return FixedClasses(tuple(int(k) for k in torch.as_tensor(labels).nonzero().flatten()))


def probs_at_size(segmentation: ImageSegmentation, size: tuple[int, ...]) -> Tensor:
    """Merged masks at the size of the ground truth, [1 + K, H, W]."""
    assert segmentation.probs is not None
    height, width = size
    return resize_masks(segmentation.probs[None], (height, width))[0]


def mask_at_size(segmentation: ImageSegmentation, size: tuple[int, ...]) -> ClassMask:
    """Mask at the size of the ground truth; where they differ, the merged masks are resized before the argmax."""
    if segmentation.mask.shape == size:
        return segmentation.mask
    values = np.array([0, *(k + 1 for k in segmentation.classes)], dtype=segmentation.mask.dtype)
    resized: ClassMask = values[probs_at_size(segmentation, size).max(0).indices.numpy()]
    return resized


def _confusion_matrices(num_classes: int, image: EvaluatedImage) -> dict[str, ConfusionMatrix]:
    """Confusion matrix of one image by protocol; a segmentation that protocols share is counted once."""
    matrices: dict[int, ConfusionMatrix] = {}
    for segmentation in image.segmentations.values():
        if id(segmentation) not in matrices:
            matrix = matrices[id(segmentation)] = ConfusionMatrix(num_classes)
            matrix.update(mask_at_size(segmentation, image.ground_truth.shape), image.ground_truth)
    return {protocol: matrices[id(segmentation)] for protocol, segmentation in image.segmentations.items()}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
