"""Settings chosen on masks: only ever by an explicit call, and marked so in every file that they reach.

What they give is an upper bound, or a baseline at its best; it is no longer a result of image tags alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import MaskDataset
from tagseg.errors import unknown_name
from tagseg.evaluation.confusion import ConfusionMatrix, mean
from tagseg.evaluation.judge import as_predictor, judge, mask_at, planes_at
from tagseg.evaluation.run import PROTOCOLS, tagged
from tagseg.models.network import Network
from tagseg.predict.predictor import Predictor
from tagseg.predict.segment import PREDICTED_TAGS, TRUE_TAGS, Choose
from tagseg.predict.settings import InferenceSettings

_THRESHOLDS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_BACKGROUNDS = tuple(round(0.05 * step, 2) for step in range(1, 16))


@dataclass(frozen=True)
class MaskTuning:
    """Settings chosen on masks.

    Attributes:
        settings: the model's settings with the best value in them, marked as chosen from masks.
        best: that value.
        mean_iou: the mean IoU, background included, of each value that was tried.
        protocol: the protocol under which they were compared.
    """

    settings: InferenceSettings
    best: float
    mean_iou: dict[float, float]
    protocol: str


def tune_on_masks(
    model: Predictor | Network,
    data: ImageDataset,
    ground_truth: MaskDataset,
    *,
    thresholds: Sequence[float] = _THRESHOLDS,
    tta: bool = False,
    crf: bool = False,
    progress: bool = True,
) -> MaskTuning:
    """The threshold, one for all classes, with the best mean IoU under `predicted-tags`.

    Args:
        model: a predictor, or a network, which is then used with the paper's settings.
        data: the images and their tags.
        ground truth: their masks.
        thresholds: the thresholds to try; each image is shown to the network once for all of them.
        quality: see `evaluate`, as for what follows.
        crf: refine by a dense CRF.
        progress: show a bar.
    """
    predictor = as_predictor(model)
    tried = {
        threshold: replace(predictor.settings, thresholds=threshold, thresholds_from="masks")
        for threshold in thresholds
    }

    def each(_: int) -> Choose:
        return lambda scores: {str(threshold): settings.kept_classes(scores) for threshold, settings in tried.items()}

    matrices = {threshold: ConfusionMatrix(1 + len(predictor.classes)) for threshold in tried}
    for judged in judge(predictor, data, ground_truth, each, tta=tta, crf=crf, progress=progress):
        for threshold, matrix in matrices.items():
            matrix.update(mask_at(judged.results[str(threshold)], judged.ground_truth.shape), judged.ground_truth)
    return _best(matrices, lambda threshold: tried[threshold], PREDICTED_TAGS)


def best_background(
    model: Predictor | Network,
    data: ImageDataset,
    ground_truth: MaskDataset,
    thresholds: Sequence[float] = _BACKGROUNDS,
    *,
    protocol: str = TRUE_TAGS,
    tta: bool = False,
    progress: bool = True,
) -> MaskTuning:
    """The background value of a CAM with the best mean IoU: a fair baseline is a baseline at its best.

    Args:
        model: a CAM.
        data: the images and their tags.
        ground truth: their masks.
        thresholds: the values to try; each image is shown to the network once for all of them.
        protocol: `true-tags` or `predicted-tags`.
        quality: see `evaluate`, as for what follows.
        progress: show a bar.
    """
    predictor = as_predictor(model)
    if predictor.description["method"] != "cam":
        raise ValueError("best_background is for CAM, whose background is a constant; this network has its own")
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)

    def one(index: int) -> Choose:
        if protocol == TRUE_TAGS:
            return lambda _: {protocol: tagged(data.labels[index])}
        return lambda scores: {protocol: predictor.settings.kept_classes(scores)}

    matrices = {threshold: ConfusionMatrix(1 + len(predictor.classes)) for threshold in thresholds}
    for judged in judge(predictor, data, ground_truth, one, tta=tta, crf=False, keep_planes=True, progress=progress):
        result = judged.results[protocol]
        planes = planes_at(result, judged.ground_truth.shape).numpy()
        planes = np.concatenate([np.zeros_like(planes[:1]), planes[1:]])  # the background has no say yet
        classes = np.array([0, *(k + 1 for k in result.kept)])[planes.argmax(0)]
        strength = planes.max(0)
        for threshold, matrix in matrices.items():
            matrix.update(np.where(strength > threshold, classes, 0), judged.ground_truth)
    return _best(
        matrices,
        lambda threshold: replace(predictor.settings, background=threshold, thresholds_from="masks"),
        protocol,
    )


def _best(
    matrices: dict[float, ConfusionMatrix], settings: Callable[[float], InferenceSettings], protocol: str
) -> MaskTuning:
    if not matrices:
        raise ValueError("there is nothing to try; give at least one value")
    values = {value: mean(matrix.iou) for value, matrix in matrices.items()}
    best = max(values, key=lambda value: values[value])
    return MaskTuning(settings(best), best, values, protocol)
