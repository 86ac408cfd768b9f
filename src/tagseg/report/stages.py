"""Stages of an image in training (Fig. 6): the network's masks, their refinement and the pseudo label."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagseg.data.dataset import ImageDataset
from tagseg.data.images import Pixels
from tagseg.models.base import enlarge
from tagseg.report.run_data import RunData
from tagseg.training.objective import refine_masks_of, threshold_masks
from tagseg.training.transforms import ValidationImages

ClassMap = NDArray[np.int64]  # [H, W]: 0 for the background, k for the k-th class, negative for ignored pixels


@dataclass(frozen=True)
class Stages:
    """One image from its tags to its pseudo label.

    Attributes:
        image_id: ID of the image.
        pixels: The image, [H, W, 3].
        tags: Classes of the image's tags, counted from 0.
        scores: Probability of each class.
        predicted_classes: Classes whose probability reaches the model's threshold, counted from 0.
        network_input: The image as the network gets it, in [0, 1], [1, 3, S, S].
        masks: Masks of the network, background first, [1, 1 + C, h, w]; those of CAM are 0 for classes that are not
            predicted.
        logits: Class scores per pixel, as in `Segmentation`.
        refined: Masks after PAMR, if the run refines.
        pseudo_label: Pseudo label with `UNLABELED` where no class is certain, [S, S]; None if the run makes none.
    """

    image_id: str
    pixels: Pixels
    tags: tuple[int, ...]
    scores: tuple[float, ...]
    predicted_classes: tuple[int, ...]
    network_input: Tensor
    masks: Tensor
    logits: Tensor
    refined: Tensor | None
    pseudo_label: ClassMap | None


@torch.inference_mode()
def compute_stages(run: RunData, data: ImageDataset, index: int) -> Stages:
    """Compute all stages of one image, which is transformed as in validation.

    Args:
        run: A run that has a model.
        data: The images.
        index: Index of the image.
    """
    assert run.predictor is not None
    network, device, settings = run.predictor.engine.network, run.predictor.engine.device, run.recipe.pseudo_labels
    image, tags = ValidationImages(data, run.recipe.transforms)[index]
    network_input = image[None].to(device).float() / 255
    # CAM normalizes its masks by their maximum at full size; the method refines its masks at the network's stride.
    out = network(network.normalize(network_input), full_size=run.is_cam)
    scores = tuple(out.scores[0].sigmoid().tolist())
    predicted_classes = run.predictor.settings.threshold_rule(len(scores)).select(scores)
    masks, refined, pseudo_label = out.masks, None, None
    if run.is_cam:
        # Every mask of CAM reaches 1 somewhere, so masks of absent classes have to be removed.
        masks[:, [1 + k for k in range(len(scores)) if k not in predicted_classes]] = 0
        if run.predictor.settings.background is not None:
            masks[:, 0] = run.predictor.settings.background
    elif run.makes_pseudo_labels:
        refined = refine_masks_of(network_input, masks, settings, tokens=out.tokens) if run.refines else None
        source = masks if refined is None else refined
        pseudo_label = threshold_masks(source, tags[None].to(device), network_input, settings)[0].cpu().numpy()
    return Stages(
        image_id=data.image_ids[index],
        pixels=data.images.read(index),
        tags=tuple(int(k) for k in tags.nonzero()[:, 0]),
        scores=scores,
        predicted_classes=predicted_classes,
        network_input=network_input,
        masks=masks,
        logits=out.logits,
        refined=refined,
        pseudo_label=pseudo_label,
    )


@torch.inference_mode()
def refine_by_iteration(run: RunData, stages: Stages, iterations: Sequence[int]) -> list[Tensor]:
    """Return the masks after each of these numbers of PAMR iterations (Fig. 9), which are in ascending order."""
    results, masks, previous = [], stages.masks, 0
    for count in iterations:
        settings = run.recipe.pseudo_labels.model_copy(update={"iterations": count - previous})
        masks, previous = refine_masks_of(stages.network_input, masks, settings), count
        results.append(masks)
    return results


def to_class_map(masks: Tensor, size: tuple[int, int]) -> ClassMap:
    """Return the class of the strongest mask at each pixel, with the masks resized to this height and width."""
    class_map: ClassMap = enlarge(masks, size)[0].argmax(0).cpu().numpy()
    return class_map


def evenly_spaced(names: Sequence[str], count: int) -> list[int]:
    """Return positions of `count` names, evenly spaced in alphabetical order; of all names if there are fewer."""
    order = sorted(range(len(names)), key=lambda index: names[index])
    count = min(count, len(order))
    return [order[step * len(order) // count] for step in range(count)]
