"""What becomes of an image in training (Fig. 6): the network's mask, its refinement, the pseudo label."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagseg.data.dataset import ImageDataset
from tagseg.data.images import Pixels
from tagseg.models.network import enlarge
from tagseg.report.run import Run
from tagseg.training.augment import ValidationImages
from tagseg.training.objective import pseudo_of, refine

Labels = NDArray[np.int64]  # [H, W]: 0 background, k the k-th class


@dataclass(frozen=True)
class Stages:
    """One image on its way from tags to pseudo label.

    Attributes:
        name: the image's ID.
        pixels: the image, [H, W, 3].
        tags: the classes that it is tagged with, counted from 0.
        scores: each class's score, after the sigmoid.
        kept: the classes whose score reaches the model's threshold, counted from 0.
        seen: the image as the network saw it, in [0, 1], [1, 3, S, S].
        masks: the network's masks, background first, [1, 1 + C, h, w]; of CAM, only those of kept classes are not 0.
        refined: the masks after PAMR, if the run refines.
        pseudo: the class that each pixel would be trained for and `IGNORE` elsewhere, [S, S]; CAM has none.
    """

    name: str
    pixels: Pixels
    tags: tuple[int, ...]
    scores: tuple[float, ...]
    kept: tuple[int, ...]
    seen: Tensor
    masks: Tensor
    refined: Tensor | None
    pseudo: Labels | None


@torch.inference_mode()
def stages_of(run: Run, data: ImageDataset, index: int) -> Stages:
    """Take one image through all stages; the network sees it as it does in validation.

    Args:
        run: a run that has a model.
        data: the images.
        index: which.
    """
    assert run.predictor is not None
    network, device, settings = run.predictor.engine.network, run.predictor.engine.device, run.recipe.pseudo_labels
    shown, tags = ValidationImages(data, run.recipe.transforms)[index]
    seen = shown[None].to(device).float() / 255
    # The masks of CAM are divided by their maximum at full size; the method's are refined at the network's own stride.
    out = network(network.normalise(seen), full_size=run.is_cam)
    scores = tuple(out.scores[0].sigmoid().tolist())
    kept = run.predictor.settings.kept_classes(scores)
    masks, refined, pseudo = out.masks, None, None
    if run.is_cam:
        # Each mask of CAM reaches 1 somewhere, so classes that are not there have to be left out.
        absent = [1 + k for k in range(len(scores)) if k not in kept]
        masks[:, absent] = 0
        if run.predictor.settings.background is not None:
            masks[:, 0] = run.predictor.settings.background
    else:
        refined = refine(seen, masks, settings) if run.refines else None
        pseudo = pseudo_of(masks if refined is None else refined, tags[None].to(device), seen, settings)
    return Stages(
        name=data.image_ids[index],
        pixels=data.images.read(index),
        tags=tuple(int(k) for k in tags.nonzero()[:, 0]),
        scores=scores,
        kept=kept,
        seen=seen,
        masks=masks,
        refined=refined,
        pseudo=None if pseudo is None else pseudo[0].cpu().numpy(),
    )


@torch.inference_mode()
def by_iteration(run: Run, stages: Stages, iterations: Sequence[int]) -> list[Tensor]:
    """The masks after so many iterations of PAMR (Fig. 9), in rising order."""
    results, masks, done = [], stages.masks, 0
    for wanted in iterations:
        more = run.recipe.pseudo_labels.model_copy(update={"iterations": wanted - done})
        masks, done = refine(stages.seen, masks, more), wanted
        results.append(masks)
    return results


def classes_at(masks: Tensor, size: tuple[int, int]) -> Labels:
    """Each pixel's strongest class, with the masks resized to an image of this height and width."""
    labels: Labels = enlarge(masks, size)[0].argmax(0).cpu().numpy()
    return labels


def evenly_spaced(names: Sequence[str], count: int) -> list[int]:
    """Positions of so many names, evenly spaced over the names in alphabetical order; all if there are not more."""
    order = sorted(range(len(names)), key=lambda index: names[index])
    count = min(count, len(order))
    return [order[step * len(order) // count] for step in range(count)]
