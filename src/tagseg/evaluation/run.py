"""`evaluate`: masks against the ground truth, under both protocols at once."""

import time
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import MaskDataset
from tagseg.evaluation.confusion import ConfusionMatrix
from tagseg.evaluation.evaluation import Evaluation
from tagseg.evaluation.judge import Judged, as_predictor, judge, judged_indices, mask_at
from tagseg.models.network import Network
from tagseg.predict.ahead import map_ahead
from tagseg.predict.predictor import Predictor
from tagseg.predict.segment import PREDICTED_TAGS, TRUE_TAGS, Choose

PROTOCOLS = (PREDICTED_TAGS, TRUE_TAGS)


def evaluate(
    model: Predictor | Network,
    data: ImageDataset,
    ground_truth: MaskDataset,
    *,
    tta: bool = False,
    crf: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Measure a model on images with known masks; the network sees each image once for both protocols.

    Pixels of value 255 are not judged. Where a mask is not of its image's size, the prediction is resized to it.

    Args:
        model: a predictor, or a network, which is then used with the paper's settings.
        data: the images and their tags, with the model's classes in the model's order.
        ground truth: the masks, opened with the same arguments; images without one are left out and counted.
        quality: use the settings' scales and flips, as the paper does.
        crf: refine by a dense CRF, for each protocol apart.
        progress: show a bar.
    """
    predictor = as_predictor(model)

    def both(index: int) -> Choose:
        tags = tagged(data.labels[index])
        return lambda scores: {PREDICTED_TAGS: predictor.settings.kept_classes(scores), TRUE_TAGS: tags}

    began = time.monotonic()
    classes = 1 + len(predictor.classes)
    confusion = {protocol: ConfusionMatrix(classes) for protocol in PROTOCOLS}
    judged = judge(predictor, data, ground_truth, both, tta=tta, crf=crf, progress=progress)
    # In threads: this one has to keep a GPU busy.
    for counted in map_ahead(partial(_count, classes), judged):
        confusion = {protocol: matrix + counted[protocol] for protocol, matrix in confusion.items()}
    images = len(judged_indices(predictor, data, ground_truth))
    return Evaluation(
        class_names=predictor.classes,
        confusion=confusion,
        images=images,
        without_masks=len(data) - images,
        settings=predictor.settings if tta else predictor.settings.single_scale,
        crf=crf,
        model=predictor.description,
        seconds=time.monotonic() - began,
        device=_name(predictor.engine.device),
    )


def _count(classes: int, judged: Judged) -> dict[str, ConfusionMatrix]:
    """The counts of one image; protocols that keep the same classes share a result, which is counted once."""
    counted: dict[int, ConfusionMatrix] = {}
    for result in judged.results.values():
        if id(result) not in counted:
            matrix = counted[id(result)] = ConfusionMatrix(classes)
            matrix.update(mask_at(result, judged.ground_truth.shape), judged.ground_truth)
    return {protocol: counted[id(result)] for protocol, result in judged.results.items()}


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


def tagged(tags: Tensor | Sequence[float]) -> tuple[int, ...]:
    """The classes that an image's tags name, counted from 0."""
    return tuple(int(k) for k in torch.as_tensor(tags).nonzero().flatten())
