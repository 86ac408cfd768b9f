"""Tab Compare: two models, or two settings of one, on the same image, and where their masks differ."""

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import Any

import gradio as gr
import numpy as np
from numpy.typing import NDArray

from tagseg._hub import DEFAULT_MODEL, MODEL_FILE
from tagseg.app.context import Context
from tagseg.app.images import ShownImages, open_images
from tagseg.app.markup import SIDE, ground_truth_cell, image_cell, notice, overlay_cell, render, shown_errors
from tagseg.app.predict_api import MAX_SIZE
from tagseg.app.ranking import image_iou
from tagseg.data.images import Pixels
from tagseg.data.masks import Mask
from tagseg.errors import ConfigError, TagsegError
from tagseg.predict.prediction import Prediction
from tagseg.predict.predictor import Predictor, load
from tagseg.predict.settings import NATIVE, WorkingSize
from tagseg.report.gallery import Cell, class_colors, thumbnail, to_cell

MODEL_SIZE = "The model's"
SIZES = [MODEL_SIZE, "256", "384", "500", "768", "1024", NATIVE]
_DIFFERENT = np.array([255, 0, 200])  # a color that no class has over a gray image
_DIMMED = 0.5


@dataclass(frozen=True)
class Side:
    """One of the two that are compared.

    Attributes:
        model: Run folder, model file, or `default`.
        tta: Test-time augmentation.
        crf: Refine masks by a dense CRF.
        size: Working size; None for the model's.
        threshold: Class threshold in place of the tuned ones, if any.
    """

    model: str
    tta: bool = False
    crf: bool = False
    size: WorkingSize | None = None
    threshold: float | None = None

    def __str__(self) -> str:
        parts = [self.model, "TTA" if self.tta else "single-scale", *(["CRF"] if self.crf else [])]
        if self.size is not None:
            parts.append(f"size {self.size}")
        if self.threshold is not None:
            parts.append(f"threshold {self.threshold:g}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Outcome:
    """Prediction of one side.

    Attributes:
        side: Model and settings.
        prediction: Its prediction.
        seconds: Time that it took.
        iou: Mean IoU of the image with its ground truth; None without ground truth of the model's classes.
    """

    side: Side
    prediction: Prediction
    seconds: float
    iou: float | None


class Models:
    """Models to compare: the page's, and the last other one, which is loaded once.

    Args:
        context: The page's model.
    """

    def __init__(self, context: Context) -> None:
        self._context, self._lock = context, Lock()
        self._other: tuple[str, Predictor] | None = None

    def names(self) -> list[str]:
        """Models to choose from: the page's, the default model, and the runs beside the page's run."""
        names = [self._context.model_path, DEFAULT_MODEL]
        if self._context.run is not None and self._context.is_local:
            runs = sorted(path.parent for path in self._context.run.resolve().parent.glob(f"*/{MODEL_FILE}"))
            names += [str(run) for run in runs if run != self._context.run.resolve()]
        return list(dict.fromkeys(names))

    def get(self, name: str) -> Predictor:
        """Load a model, unless it is loaded.

        Raises:
            ConfigError: The page is served to other machines, and this model is not in the list.
        """
        if name == self._context.model_path:
            return self._context.model
        if not self._context.is_local and name not in self.names():
            raise ConfigError(f"{name}: other models can be named only where the page is served to this machine alone")
        with self._lock:
            if self._other is None or self._other[0] != name:
                self._other = None  # frees its memory before the next one is loaded
                self._other = (name, load(name, device=str(self._context.model.engine.device)))
            return self._other[1]


def parse_side(model: str, tta: bool, crf: bool, size: str, threshold: str) -> Side:
    """Settings as the page has them.

    Raises:
        ConfigError: The size or the threshold is no number, or too large.
    """
    if size not in (MODEL_SIZE, NATIVE) and not (size.isascii() and size.isdecimal() and int(size) <= MAX_SIZE):
        raise ConfigError(f"size: {size!r} is neither {NATIVE} nor a number of pixels up to {MAX_SIZE}")
    try:
        number = float(threshold) if threshold.strip() else None
    except ValueError:
        raise ConfigError(
            f"threshold: {threshold!r} is not a number", "write for example 0.1, or leave it empty"
        ) from None
    sizes: dict[str, WorkingSize | None] = {MODEL_SIZE: None, NATIVE: "native"}
    return Side(model, tta, crf, sizes[size] if size in sizes else int(size), number)


def predict(context: Context, models: Models, side: Side, pixels: Pixels) -> tuple[Prediction, float]:
    """Segment an image as one side says; returns the seconds it took, too."""

    def job() -> tuple[Prediction, float]:
        predictor = copy(models.get(side.model))  # the original keeps its thresholds
        if side.threshold is not None:
            predictor.settings = predictor.settings.with_threshold(side.threshold)
        start = time.perf_counter()
        prediction = predictor.predict(pixels, tta=side.tta, crf=side.crf, size=side.size, probabilities=False)
        return prediction, time.perf_counter() - start

    return context.queue.run(job)


def compare(context: Context, models: Models, images: ShownImages, index: int, sides: Sequence[Side]) -> str:
    """HTML of an image as two sides segment it."""
    pixels, ground_truth = images.data.images.read(index), images.ground_truth(index)
    outcomes = []
    for side in sides:
        prediction, seconds = predict(context, models, side, pixels)
        has_classes = tuple(prediction.scores) == images.data.classes
        iou = image_iou(prediction, ground_truth) if ground_truth is not None and has_classes else None
        outcomes.append(Outcome(side, prediction, seconds, iou))
    return _render(images, index, pixels, ground_truth, outcomes)


def with_classes(prediction: Prediction, classes: Sequence[str]) -> NDArray[np.int64]:
    """Mask whose values count the classes of another list, which has all of the prediction's; 0 is background."""
    values = np.array([0, *(1 + classes.index(name) for name in prediction.scores)])
    return np.asarray(values[prediction.mask])


def _render(
    images: ShownImages, index: int, pixels: Pixels, ground_truth: Mask | None, outcomes: Sequence[Outcome]
) -> str:
    classes = list(dict.fromkeys(name for outcome in outcomes for name in outcome.prediction.scores))
    first, second = masks = [with_classes(outcome.prediction, classes) for outcome in outcomes]
    cells = {"Image": image_cell(pixels, images.data.image_ids[index])}
    for letter, mask, outcome in zip("AB", masks, outcomes, strict=True):
        cells[f"{letter}: {outcome.side}"] = overlay_cell(pixels, mask.astype(np.uint16), classes, f"mask of {letter}")
    cells["Differences"] = _difference_cell(pixels, first != second)
    if ground_truth is not None:
        cells["Ground truth"] = ground_truth_cell(pixels, ground_truth, list(images.data.classes))
    colors = class_colors(len(classes))
    rows = [
        {
            "name": name,
            "color": colors[value],
            "shares": [float((mask == value).mean()) for mask in masks],
            "scores": [outcome.prediction.scores.get(name) for outcome in outcomes],
            "agreement": _agreement(first == value, second == value),
        }
        for value, name in enumerate(classes, start=1)
        if any((mask == value).any() for mask in masks)
    ]
    return render(
        "compare",
        name=images.data.image_ids[index],
        cells=cells,
        outcomes=list(zip("AB", outcomes, strict=True)),
        share=float((first != second).mean()),
        rows=rows,
        has_ground_truth=ground_truth is not None,
    )


def _difference_cell(pixels: Pixels, is_different: NDArray[np.bool_]) -> Cell:
    """The image in gray, with the pixels in a bright color where the masks differ."""
    gray = np.repeat(_DIMMED * pixels.mean(2, keepdims=True), 3, axis=2)
    gray[is_different] = 0.3 * gray[is_different] + 0.7 * _DIFFERENT
    share = f"{100 * is_different.mean():.1f} %"
    return to_cell(thumbnail(gray.astype(np.uint8), SIDE), f"the masks differ in {share} of the pixels")


def _agreement(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """IoU of two masks of a class that has a pixel in either."""
    return float((first & second).sum() / (first | second).sum())


def build(context: Context) -> None:
    """Build the tab."""
    try:
        images = open_images(context)
    except TagsegError as error:
        gr.HTML(notice(str(error)), apply_default_css=False)
        return
    models = Models(context)
    choices = images.choices()
    image = gr.Dropdown(choices, value=choices[0][1], label="Image")
    with gr.Row():
        sides = [_build_side(letter, context, models, tta=letter == "B") for letter in "AB"]
    run = gr.Button("Compare", variant="primary")
    view = gr.HTML(notice("Choose what A and B are, and compare them."), apply_default_css=False)

    def show(index: int, *values: Any) -> str:
        half = len(values) // 2
        with shown_errors():
            parsed = [parse_side(*values[:half]), parse_side(*values[half:])]
            return compare(context, models, images, index, parsed)

    run.click(show, [image, *sides[0], *sides[1]], view, show_progress_on=view, scroll_to_output=True)


def _build_side(letter: str, context: Context, models: Models, *, tta: bool) -> list[Any]:
    """Build the settings of one side; B begins with other settings than A."""
    with gr.Column(min_width=280), gr.Group():
        model = gr.Dropdown(
            models.names(),
            value=context.model_path,
            label=f"Model {letter}",
            info="From the list, or the path of a run or a model file" if context.is_local else None,
            allow_custom_value=context.is_local,
        )
        with gr.Row():
            has_tta = gr.Checkbox(tta, label=f"TTA for {letter}", min_width=140)
            has_crf = gr.Checkbox(False, label=f"CRF for {letter}", min_width=140)
        with gr.Row():
            size = gr.Dropdown(SIZES, value=MODEL_SIZE, label=f"Size for {letter}", min_width=140)
            threshold = gr.Textbox("", label=f"Threshold for {letter}", placeholder="the model's", min_width=140)
    return [model, has_tta, has_crf, size, threshold]
