"""Settings tuned on masks: only ever by an explicit call, and marked so in every file that they reach.

They give an upper bound, or a baseline at its best; it is no longer a result of image tags alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import MaskDataset
from tagseg.errors import ConfigError, unknown_name
from tagseg.evaluation.evaluate import (
    PROTOCOLS,
    as_predictor,
    labels_rule,
    mask_at_size,
    probs_at_size,
    segment_with_masks,
)
from tagseg.evaluation.metrics import ConfusionMatrix, mean
from tagseg.models.base import Network
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS, ClassRules
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings

_THRESHOLDS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_BACKGROUNDS = tuple(round(0.05 * step, 2) for step in range(1, 16))


@dataclass(frozen=True)
class MaskTuning:
    """Settings tuned on masks.

    Attributes:
        settings: The model's settings with the best value, marked as chosen on masks.
        best: The best value.
        mean_iou: Mean IoU, background included, of each value.
        protocol: Protocol under which the values were compared.
    """

    settings: InferenceSettings
    best: float
    mean_iou: dict[float, float]
    protocol: str


def tune_on_masks(
    model: Predictor | Network,
    data: ImageDataset,
    masks: MaskDataset,
    *,
    thresholds: Sequence[float] = _THRESHOLDS,
    tta: bool = False,
    crf: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
) -> MaskTuning:
    """Find the threshold, one for all classes, with the best mean IoU under `predicted-tags`.

    Args:
        model: A predictor, or a network, which is then used with the paper's settings.
        data: Images and their tags.
        masks: Ground truth.
        thresholds: Values to try; the network runs once per image for all of them.
        tta: Test-time augmentation.
        crf: Refine by a dense CRF.
        batch_size: Images of one size that run together; by default what suits the device.
        progress: Show a progress bar.
    """
    predictor = as_predictor(model)
    candidates = {value: replace(predictor.settings, thresholds=value, thresholds_from="masks") for value in thresholds}
    rules: ClassRules = {
        str(value): settings.threshold_rule(len(predictor.classes)) for value, settings in candidates.items()
    }
    matrices = {value: ConfusionMatrix(1 + len(predictor.classes)) for value in candidates}
    for image in segment_with_masks(
        predictor, data, masks, lambda _: rules, tta=tta, crf=crf, batch_size=batch_size, progress=progress
    ):
        for value, matrix in matrices.items():
            mask = mask_at_size(image.segmentations[str(value)], image.ground_truth.shape)
            matrix.update(mask, image.ground_truth)
    return _best(matrices, candidates, PREDICTED_TAGS)


def best_background(
    model: Predictor | Network,
    data: ImageDataset,
    masks: MaskDataset,
    backgrounds: Sequence[float] = _BACKGROUNDS,
    *,
    protocol: str = TRUE_TAGS,
    tta: bool = False,
    progress: bool = False,
) -> MaskTuning:
    """Find the background value of a CAM with the best mean IoU, tuned so that the CAM baseline is not understated.

    Args:
        model: A CAM.
        data: Images and their tags.
        masks: Ground truth.
        backgrounds: Values to try; the network runs once per image for all of them.
        protocol: `true-tags` or `predicted-tags`.
        tta: Test-time augmentation.
        progress: Show a progress bar.
    """
    predictor = as_predictor(model)
    if predictor.description["method"] != "cam":
        raise ConfigError("best_background is for CAM, whose background is a constant")
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    threshold_rule = predictor.settings.threshold_rule(len(predictor.classes))

    def rules(index: int) -> ClassRules:
        return {protocol: labels_rule(data.labels[index]) if protocol == TRUE_TAGS else threshold_rule}

    matrices = {value: ConfusionMatrix(1 + len(predictor.classes)) for value in backgrounds}
    for image in segment_with_masks(
        predictor, data, masks, rules, tta=tta, crf=False, keep_probs=True, progress=progress
    ):
        segmentation = image.segmentations[protocol]
        probs = probs_at_size(segmentation, image.ground_truth.shape).numpy()
        probs = np.concatenate([np.zeros_like(probs[:1]), probs[1:]])  # without the model's own background
        classes = np.array([0, *(k + 1 for k in segmentation.classes)])[probs.argmax(0)]
        strength = probs.max(0)
        for value, matrix in matrices.items():
            matrix.update(np.where(strength > value, classes, 0), image.ground_truth)
    candidates = {
        value: replace(predictor.settings, background=value, thresholds_from="masks") for value in backgrounds
    }
    return _best(matrices, candidates, protocol)


def _best(
    matrices: dict[float, ConfusionMatrix], candidates: dict[float, InferenceSettings], protocol: str
) -> MaskTuning:
    if not matrices:
        raise ConfigError("there is no value to try; give at least one")
    mean_iou = {value: mean(matrix.iou) for value, matrix in matrices.items()}
    best = max(mean_iou, key=lambda value: mean_iou[value])
    return MaskTuning(candidates[best], best, mean_iou, protocol)
