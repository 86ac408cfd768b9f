"""Every image of a dataset with its masks and its ground truth, from one pass of the network per image."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track

from tagseg.data.dataset import ImageDataset
from tagseg.data.images import Pixels
from tagseg.data.masks import Mask, MaskDataset
from tagseg.models.network import Network
from tagseg.predict.ahead import map_ahead
from tagseg.predict.batches import in_batches
from tagseg.predict.predictor import Predictor
from tagseg.predict.segment import Choose, Segmented
from tagseg.predict.tiles import Mask as PredictedMask

BATCH_SIZE = 8


@dataclass(frozen=True)
class Judged:
    """One image's masks under each protocol, and its ground truth."""

    results: dict[str, Segmented]
    ground_truth: Mask


@dataclass(frozen=True)
class _Item:
    index: int
    pixels: Pixels
    ground_truth: Mask


def as_predictor(model: Predictor | Network) -> Predictor:
    """A network alone is used with the paper's settings."""
    return model if isinstance(model, Predictor) else Predictor(model)


def judged_indices(predictor: Predictor, data: ImageDataset, ground_truth: MaskDataset) -> list[int]:
    """The images that have masks; classes of another order or name are refused, since they would be mixed up."""
    for what, names in (("images' tags", data.classes), ("masks", ground_truth.classes)):
        if tuple(names) != predictor.classes:
            raise ValueError(
                f"the {what} have the classes {', '.join(names)}, but the model has {', '.join(predictor.classes)}; "
                "open them with classes= those of the model, in its order"
            )
    indices = [index for index, name in enumerate(data.image_ids) if name in ground_truth]
    if not indices:
        raise ValueError(
            f"none of the {len(data)} images has a mask (the first is {data.image_ids[0]!r}); open the masks with the "
            "arguments of the dataset"
        )
    return indices


def judge(
    predictor: Predictor,
    data: ImageDataset,
    ground_truth: MaskDataset,
    choose: Callable[[int], Choose],
    *,
    tta: bool,
    crf: bool,
    keep_planes: bool = False,
    progress: bool,
) -> Iterator[Judged]:
    """Go through all images that have masks.

    Args:
        predictor: the model.
        data: the images and their tags.
        ground truth: the masks.
        choose: for the image at an index, which classes each protocol keeps.
        quality: use the settings' scales and flips.
        crf: refine by a dense CRF.
        keep_planes: keep the merged masks of every image; otherwise only where the ground truth is of another size.
        progress: show a bar.
    """
    settings = predictor.settings if tta else predictor.settings.single_scale
    indices = judged_indices(predictor, data, ground_truth)

    def read(index: int) -> _Item:
        return _Item(index, data.images.read(index), ground_truth[data.image_ids[index]])

    items = map_ahead(read, indices, size=lambda item: item.pixels.nbytes + item.ground_truth.nbytes)
    shown = track(items, "evaluating", len(indices), console=Console(stderr=True), disable=not progress)

    def begin(batch: list[_Item]) -> Callable[[], list[Judged]]:
        resized = any(item.pixels.shape[:2] != item.ground_truth.shape for item in batch)
        found = predictor.engine.begin(
            [item.pixels for item in batch],
            [choose(item.index) for item in batch],
            settings,
            crf=crf,
            keep_planes=keep_planes or resized,
        )
        return lambda: [Judged(results, item.ground_truth) for item, (_, results) in zip(batch, found(), strict=True)]

    return in_batches(shown, begin, batch_size=BATCH_SIZE, in_flight=predictor.engine.in_flight)


def planes_at(result: Segmented, size: tuple[int, ...]) -> torch.Tensor:
    """The merged masks at the ground truth's size, [1 + K, H, W]."""
    assert result.planes is not None
    if result.planes.shape[1:] == size:
        return result.planes
    return F.interpolate(result.planes[None], size=size, mode="bilinear", align_corners=False)[0]


def mask_at(result: Segmented, size: tuple[int, ...]) -> PredictedMask:
    """The mask at the ground truth's size: where they differ, the merged masks are resized and compared again."""
    if result.mask.shape == size:
        return result.mask
    values = np.array([0, *(k + 1 for k in result.kept)], dtype=result.mask.dtype)
    resized: PredictedMask = values[planes_at(result, size).max(0).indices.numpy()]
    return resized
