"""Images of the report: the stages of each (Fig. 6), the refinement by iteration (Fig. 9), tags and class scores."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from PIL import Image

from tagseg.data.dataset import ImageDataset
from tagseg.data.images import Pixels
from tagseg.data.masks import IGNORE_LABEL, Mask, MaskDataset
from tagseg.predict.render import blend
from tagseg.predict.resize import resize_nearest
from tagseg.report.run_data import RunData
from tagseg.report.stages import ClassMap, Stages, compute_stages, evenly_spaced, refine_by_iteration, to_class_map

ITERATIONS = (1, 3, 5, 7, 10)
INPUT = "input"
_MAX_STAGES = 5
_MAX_PREDICTED_TAGS = 8
_IMAGES_BY_ITERATION = 2
_MAX_SIDE, _MIN_SIDE = 320, 64
_MIN_ENLARGED_SIDE = 192
_MAX_BYTES = 1_800_000  # of all JPEG files; base64 makes 2.4 MB of them
_BYTES_PER_PIXEL = 0.35  # of a JPEG file of an image with much detail
_IGNORED_BRIGHTNESS = 0.3


@dataclass(frozen=True)
class Tag:
    """A class name with its color in the overlays; the text may add a score."""

    text: str
    color: str


@dataclass(frozen=True)
class Cell:
    """An image as a data URI, with a description for readers who do not see it."""

    uri: str
    alt: str
    width: int
    height: int


@dataclass(frozen=True)
class Row:
    """One image at several stages.

    Attributes:
        image_id: ID of the image.
        cells: The image by column name; None where it has no ground-truth mask.
        tags: Tags of the image.
        predicted: Predicted tags, by descending score.
        hidden_tags: Number of further predicted tags.
    """

    image_id: str
    cells: dict[str, Cell | None]
    tags: list[Tag]
    predicted: list[Tag]
    hidden_tags: int


@dataclass(frozen=True)
class Gallery:
    """All images of the report.

    Attributes:
        stages: The stages of each image.
        iterations: Some of the images by PAMR iteration; empty where the run does not refine.
        legend: The classes.
        total: Number of images that these were chosen from.
        has_masks: Whether any of the images has a ground-truth mask.
    """

    stages: list[Row]
    iterations: list[Row]
    legend: list[Tag]
    total: int
    has_masks: bool


def make_gallery(run: RunData, images: ImageDataset, masks: MaskDataset | None, count: int) -> Gallery:
    """Compute the stages of up to `count` images and paint them.

    Args:
        run: A run that has a model.
        images: The validation images; at least one.
        masks: Their ground-truth masks, if any.
        count: Number of images to show.
    """
    all_stages = [compute_stages(run, images, index) for index in evenly_spaced(images.image_ids, count)]
    if masks is not None and not any(stages.image_id in masks for stages in all_stages):
        masks = None
    # The first and the last image are enough to show what an iteration does.
    refined_stages = all_stages[:: max(1, len(all_stages) - 1)][:_IMAGES_BY_ITERATION] if run.refines else []
    side = side_for(len(all_stages) * _MAX_STAGES + len(refined_stages) * (len(ITERATIONS) + 2))
    colors = class_colors(len(run.classes))
    return Gallery(
        stages=[_stage_row(run, stages, masks, side, colors) for stages in all_stages],
        iterations=[_iteration_row(run, stages, masks, side) for stages in refined_stages],
        legend=[Tag(name, color) for name, color in zip(run.classes, colors[1:], strict=True)],
        total=len(images),
        has_masks=masks is not None,
    )


def side_for(count: int) -> int:
    """Return the longer side with which this number of images fits into one page."""
    return max(_MIN_SIDE, min(_MAX_SIDE, int(sqrt(_MAX_BYTES / _BYTES_PER_PIXEL / max(1, count)))))


def thumbnail(pixels: Pixels, side: int) -> Pixels:
    """Reduce an image to a longer side of `side`; enlarge a tiny one so that outlines stay thin."""
    image = Image.fromarray(pixels)
    longer_side = max(image.size)
    if longer_side < _MIN_ENLARGED_SIDE <= side:
        factor = -(-_MIN_ENLARGED_SIDE // longer_side)
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    image.thumbnail((side, side))
    return np.asarray(image)


def paint(image: Pixels, class_map: ClassMap) -> Pixels:
    """Overlay an image with its classes; ignored pixels become gray and dark.

    Args:
        image: The image, [H, W, 3].
        class_map: 0 for the background, k for the k-th class, negative for ignored pixels; resized to the image.
    """
    class_map = resize_nearest(class_map, image.shape[:2])
    painted = blend(image, np.maximum(class_map, 0).astype(np.uint16))
    gray = image.astype(np.float32).mean(2, keepdims=True)
    return np.where(class_map[..., None] < 0, _IGNORED_BRIGHTNESS * gray, painted).astype(np.uint8)


def ground_truth_class_map(mask: Mask) -> ClassMap:
    """Class map of a ground-truth mask for `paint`."""
    return np.where(mask == IGNORE_LABEL, -1, mask.astype(np.int64))


def to_data_uri(image: Pixels) -> str:
    """Encode an image as JPEG in a data URI."""
    file = io.BytesIO()
    # Colors at full resolution: the outline of a class is a change of color.
    Image.fromarray(image).save(file, "JPEG", quality=80, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def to_cell(image: Pixels, alt: str) -> Cell:
    """Encode an image for the page, with its description."""
    height, width = image.shape[:2]
    return Cell(to_data_uri(image), alt, width, height)


def class_map_cell(image: Pixels, class_map: ClassMap, classes: Sequence[str], name: str) -> Cell:
    """An image with its classes over it; the description lists them.

    Args:
        image: The image, [H, W, 3].
        class_map: As in `paint`.
        classes: Class names.
        name: What the class map is, for the description.
    """
    names = ", ".join(classes[value - 1] for value in np.unique(class_map) if value > 0) or "background only"
    return to_cell(paint(image, class_map), f"{name}: {names}")


def class_colors(classes: int) -> list[str]:
    """Return the CSS colors of the background and each class, as `paint` shows them over a medium gray."""
    gray: Pixels = np.full((1, 1, 3), 128, dtype=np.uint8)
    return [f"#{bytes(paint(gray, np.array([[value]]))[0, 0].tolist()).hex()}" for value in range(classes + 1)]


def _stage_row(run: RunData, stages: Stages, masks: MaskDataset | None, side: int, colors: Sequence[str]) -> Row:
    image = thumbnail(stages.pixels, side)
    size = (image.shape[0], image.shape[1])
    class_maps = {"CAM masks" if run.is_cam else "prediction": to_class_map(stages.masks, size)}
    if stages.refined is not None:
        class_maps["refinement"] = to_class_map(stages.refined, size)
    if stages.pseudo_label is not None:
        class_maps["pseudo label"] = stages.pseudo_label
    cells: dict[str, Cell | None] = {INPUT: to_cell(image, f"{stages.image_id}, {INPUT}")}
    cells |= _stage_cells(run, stages.image_id, image, class_maps) | _mask_cell(run, stages.image_id, image, masks)
    ranked = sorted(stages.predicted_classes, key=lambda k: -stages.scores[k])
    return Row(
        image_id=stages.image_id,
        cells=cells,
        tags=[Tag(run.classes[k] + _missed(k, stages), colors[k + 1]) for k in stages.tags],
        predicted=[
            Tag(
                f"{run.classes[k]} {100 * stages.scores[k]:.0f} %{'' if k in stages.tags else ' (not tagged)'}",
                colors[k + 1],
            )
            for k in ranked[:_MAX_PREDICTED_TAGS]
        ],
        hidden_tags=max(0, len(ranked) - _MAX_PREDICTED_TAGS),
    )


def _missed(k: int, stages: Stages) -> str:
    return "" if k in stages.predicted_classes else f" (missed, {100 * stages.scores[k]:.0f} %)"


def _iteration_row(run: RunData, stages: Stages, masks: MaskDataset | None, side: int) -> Row:
    image = thumbnail(stages.pixels, side)
    size = (image.shape[0], image.shape[1])
    class_maps = {"prediction": to_class_map(stages.masks, size)}
    for count, refined in zip(ITERATIONS, refine_by_iteration(run, stages, ITERATIONS), strict=True):
        class_maps[f"{count} iteration{'s' if count > 1 else ''}"] = to_class_map(refined, size)
    cells = _stage_cells(run, stages.image_id, image, class_maps) | _mask_cell(run, stages.image_id, image, masks)
    return Row(stages.image_id, cells, tags=[], predicted=[], hidden_tags=0)


def _stage_cells(run: RunData, image_id: str, image: Pixels, class_maps: dict[str, ClassMap]) -> dict[str, Cell | None]:
    """Paint an image with the class map of each stage."""
    return {
        stage: class_map_cell(image, class_map, run.classes, f"{image_id}, {stage}")
        for stage, class_map in class_maps.items()
    }


def _mask_cell(run: RunData, image_id: str, image: Pixels, masks: MaskDataset | None) -> dict[str, Cell | None]:
    """Paint an image with its ground-truth mask; empty without masks."""
    if masks is None:
        return {}
    if image_id not in masks:
        return {"ground truth": None}
    return _stage_cells(run, image_id, image, {"ground truth": ground_truth_class_map(masks[image_id])})
