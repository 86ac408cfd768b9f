"""Tab Look inside: how scores, masks and the pseudo label of an image come about (Fig. 6 and 9 of the paper)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
import torch

from tagseg.app.context import Context
from tagseg.app.images import ShownImages, open_images
from tagseg.app.markup import SIDE, ground_truth_cell, image_cell, notice, render, shown_errors
from tagseg.data.dataset import ImageDataset
from tagseg.data.images import Pixels
from tagseg.errors import TagsegError
from tagseg.models.pooling import POOLINGS, build_penalty
from tagseg.predict.settings import crop_for_size
from tagseg.report.gallery import Cell, class_colors, class_map_cell, thumbnail
from tagseg.report.run_data import RunData, read_run
from tagseg.report.stages import Stages, compute_stages, refine_by_iteration, to_class_map
from tagseg.training.recipe import Recipe

_MIN_ROWS = 8  # of the table of scores, if there are as many classes
_POOLING_NAMES = {"ngwp": "nGWP (Eq. 3)", "gwp": "GWP", "gap": "GAP (Eq. 1)", "max": "max", "lse": "LSE"}


@dataclass(frozen=True)
class ClassScore:
    """Score of a class and its parts.

    Attributes:
        name: Name of the class.
        color: Its color in the overlays.
        probability: Score after the sigmoid.
        threshold: Score from which on the class is predicted.
        is_tagged: Whether it is among the image's tags.
        pooled: Pooled pixel scores, the nGWP part; None if the network's scores are no such sum.
        penalty: Size penalty; None without one.
    """

    name: str
    color: str
    probability: float
    threshold: float
    is_tagged: bool
    pooled: float | None
    penalty: float | None

    @property
    def is_predicted(self) -> bool:
        """Whether the score reaches the threshold."""
        return self.probability >= self.threshold


def settings_of(context: Context) -> RunData:
    """Settings with which the page's model was trained: those of the run, or the paper's for a model alone."""
    method = context.model.description["method"]
    if context.run is not None:
        run = read_run(context.run, load_model=False)
        if run.recipe.model.method == method:
            return replace(run, predictor=context.model)
    settings = {"model": {"method": method}, "transforms": {"crop": crop_for_size(context.model.settings.size)}}
    return RunData(
        folder=Path(context.model_path),
        config={},
        recipe=Recipe().with_settings(settings),
        classes=context.model.classes,
        metrics=[],
        train_state=None,
        predictor=context.model,
    )


def with_tags(data: ImageDataset, index: int, tags: Sequence[str]) -> ImageDataset:
    """Dataset of one image, with these tags."""
    labels = torch.tensor([[float(name in tags) for name in data.classes]])
    return ImageDataset(data.classes, (data.image_ids[index],), labels, data.images.select([index]))


def score_parts(run: RunData, stages: Stages) -> tuple[list[float] | None, list[float] | None]:
    """Pooled pixel scores and size penalties of the classes, whose sum is the score before the sigmoid.

    Both are None for networks whose scores are not pooled from masks: CAM, and those that learned from masks.
    """
    assert run.predictor is not None
    if not run.makes_pseudo_labels:
        return None, None
    config = run.predictor.engine.network.config
    logits, masks = stages.logits[:, 1:], stages.masks[:, 1:]
    penalty = build_penalty(config.penalty, p=config.penalty_p, lam=config.penalty_lambda)
    return POOLINGS[config.pooling](logits, masks)[0].tolist(), None if penalty is None else penalty(masks)[0].tolist()


def class_scores(run: RunData, stages: Stages) -> list[ClassScore]:
    """Scores of the tagged, the predicted and the highest-scoring classes, in descending order."""
    assert run.predictor is not None
    pooled, penalties = score_parts(run, stages)
    thresholds = run.predictor.settings.thresholds_per_class(len(run.classes))
    colors = class_colors(len(run.classes))
    ranked = sorted(range(len(run.classes)), key=lambda k: -stages.scores[k])
    listed = {*ranked[:_MIN_ROWS], *stages.tags, *stages.predicted_classes}
    return [
        ClassScore(
            name=run.classes[k],
            color=colors[k + 1],
            probability=stages.scores[k],
            threshold=thresholds[k],
            is_tagged=k in stages.tags,
            pooled=None if pooled is None else pooled[k],
            penalty=None if penalties is None else penalties[k],
        )
        for k in ranked
        if k in listed
    ]


def pamr_frames(run: RunData, stages: Stages, image: Pixels) -> list[Cell]:
    """The masks before PAMR and after each of its iterations; empty if the run does not refine."""
    if not run.refines:
        return []
    counts = range(1, run.recipe.pseudo_labels.iterations + 1)
    masks = [stages.masks, *refine_by_iteration(run, stages, counts)]
    return [
        class_map_cell(image, to_class_map(mask, _size(image)), run.classes, _iterations(n))
        for n, mask in enumerate(masks)
    ]


def look_inside(context: Context, images: ShownImages, index: int, tags: Sequence[str]) -> str:
    """HTML of the stages and the scores of an image.

    Args:
        context: The model and its queue.
        images: The images.
        index: Index of the image.
        tags: Tags that the pseudo label is limited to.
    """
    run = settings_of(context)
    stages, frames, scores = context.queue.run(lambda: _compute(run, with_tags(images.data, index, tags)))
    image = thumbnail(stages.pixels, SIDE)
    cells = {
        "Image": image_cell(stages.pixels, stages.image_id),
        "CAM masks" if run.is_cam else "Prediction": class_map_cell(
            image, to_class_map(stages.masks, _size(image)), run.classes, "prediction"
        ),
    }
    if stages.pseudo_label is not None:
        cells["Pseudo label"] = class_map_cell(image, stages.pseudo_label, run.classes, "pseudo label")
    if (ground_truth := images.ground_truth(index)) is not None:
        cells["Ground truth"] = ground_truth_cell(stages.pixels, ground_truth, list(run.classes))
    assert run.predictor is not None
    return render(
        "inside",
        run=run,
        stages=stages,
        cells=cells,
        frames=frames,
        scores=scores,
        pooling=_POOLING_NAMES[run.predictor.engine.network.config.pooling],
    )


def _compute(run: RunData, data: ImageDataset) -> tuple[Stages, list[Cell], list[ClassScore]]:
    stages = compute_stages(run, data, 0)
    return stages, pamr_frames(run, stages, thumbnail(stages.pixels, SIDE)), class_scores(run, stages)


def _iterations(count: int) -> str:
    return "before PAMR" if count == 0 else f"after {count} iteration{'' if count == 1 else 's'}"


def _size(image: Pixels) -> tuple[int, int]:
    return image.shape[0], image.shape[1]


def build(context: Context) -> None:
    """Build the tab."""
    try:
        images = open_images(context)
        settings_of(context)
    except TagsegError as error:
        gr.HTML(notice(str(error)), apply_default_css=False)
        return
    with gr.Row():
        image = gr.Dropdown(images.choices(), value=None, label="Image", min_width=240)
        tags = gr.Dropdown(
            list(context.model.classes),
            value=[],
            multiselect=True,
            label="Tags",
            info="The pseudo label is limited to them",
            min_width=240,
        )
        next_image = gr.Button("Next image", min_width=140, scale=0)
    view = gr.HTML(
        notice("Choose an image to see its scores, its masks and its pseudo label."), apply_default_css=False
    )
    indices = [index for _, index in images.choices()]
    # A choice from a list is reported more than once: nothing is computed for the current one.
    current_choice = gr.State(None)

    def open_image(index: int | None, current: tuple[int, list[str]] | None) -> Any:
        if index is None or (current is not None and current[0] == index):
            return gr.skip()
        with shown_errors():
            names = images.tags(index) if images.have_tags else _predicted_tags(context, images, index)
            return names, look_inside(context, images, index, names), (index, names)

    def open_next(index: int | None) -> tuple[Any, ...]:
        position = -1 if index is None else indices.index(index)
        following = indices[(position + 1) % len(indices)]
        return following, *open_image(following, None)

    def change_tags(index: int | None, names: list[str], current: tuple[int, list[str]] | None) -> Any:
        if index is None or current == (index, names):
            return gr.skip()
        with shown_errors():
            return look_inside(context, images, index, names), (index, names)

    image.input(open_image, [image, current_choice], [tags, view, current_choice], show_progress_on=view)
    next_image.click(open_next, image, [image, tags, view, current_choice], show_progress_on=view)
    tags.input(change_tags, [image, tags, current_choice], [view, current_choice], show_progress_on=view)


def _predicted_tags(context: Context, images: ShownImages, index: int) -> list[str]:
    """Tags that the model predicts for an image that nobody has tagged."""
    pixels = images.data.images.read(index)
    prediction = context.queue.run(lambda: context.model.predict(pixels, probabilities=False))
    return list(prediction.allowed_classes)
