"""`evaluate`: masks against the truth, under both protocols at once."""

import time
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tagseg.data.dataset import ImageTags
from tagseg.data.truth import PixelTruth
from tagseg.evaluation.confusion import ConfusionMatrix
from tagseg.evaluation.evaluation import Evaluation
from tagseg.evaluation.judge import Judged, as_predictor, judge, judged_indices, mask_at
from tagseg.inference.ahead import map_ahead
from tagseg.inference.predictor import Predictor
from tagseg.inference.segment import PREDICTED_TAGS, TRUE_TAGS, Choose
from tagseg.models.network import Network

PROTOCOLS = (PREDICTED_TAGS, TRUE_TAGS)


def evaluate(
    model: Predictor | Network,
    data: ImageTags,
    truth: PixelTruth,
    *,
    quality: bool = False,
    crf: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Measure a model on pictures with known masks; the network sees each picture once for both protocols.

    Pixels of value 255 are not judged. Where a mask is not of its picture's size, the prediction is resized to it.

    Args:
        model: a predictor, or a network, which is then used with the paper's settings.
        data: the pictures and their tags, with the model's classes in the model's order.
        truth: the masks, opened with the same arguments; pictures without one are left out and counted.
        quality: use the settings' scales and flips, as the paper does.
        crf: refine by a dense CRF, for each protocol apart.
        progress: show a bar.
    """
    predictor = as_predictor(model)

    def both(index: int) -> Choose:
        tags = tagged(data.tags[index])
        return lambda scores: {PREDICTED_TAGS: predictor.settings.kept_classes(scores), TRUE_TAGS: tags}

    began = time.monotonic()
    classes = 1 + len(predictor.classes)
    confusion = {protocol: ConfusionMatrix(classes) for protocol in PROTOCOLS}
    judged = judge(predictor, data, truth, both, quality=quality, crf=crf, progress=progress)
    # In threads: this one has to keep a GPU busy.
    for counted in map_ahead(partial(_count, classes), judged):
        confusion = {protocol: matrix + counted[protocol] for protocol, matrix in confusion.items()}
    pictures = len(judged_indices(predictor, data, truth))
    return Evaluation(
        class_names=predictor.classes,
        confusion=confusion,
        pictures=pictures,
        without_truth=len(data) - pictures,
        settings=predictor.settings if quality else predictor.settings.quick,
        crf=crf,
        model=predictor.description,
        seconds=time.monotonic() - began,
        device=_name(predictor.engine.device),
    )


def _count(classes: int, judged: Judged) -> dict[str, ConfusionMatrix]:
    """The counts of one picture; protocols that keep the same classes share a result, which is counted once."""
    counted: dict[int, ConfusionMatrix] = {}
    for result in judged.results.values():
        if id(result) not in counted:
            matrix = counted[id(result)] = ConfusionMatrix(classes)
            matrix.update(mask_at(result, judged.truth.shape), judged.truth)
    return {protocol: counted[id(result)] for protocol, result in judged.results.items()}


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


def tagged(tags: Tensor | Sequence[float]) -> tuple[int, ...]:
    """The classes that a picture's tags name, counted from 0."""
    return tuple(int(k) for k in torch.as_tensor(tags).nonzero().flatten())
