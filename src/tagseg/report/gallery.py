"""The images: what each stage makes of them (Fig. 6), and the refinement step by step (Fig. 9)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagseg.data.dataset import ImageDataset
from tagseg.data.images import Pixels
from tagseg.data.masks import IGNORE_LABEL, MaskDataset
from tagseg.report.images import as_jpeg, colours, paint, side_for, small_copy
from tagseg.report.markup import Markup, element, percent
from tagseg.report.run import NO_MODEL_YET, Run
from tagseg.report.stages import Labels, Stages, by_iteration, classes_at, evenly_spaced, stages_of
from tagseg.training.pseudo import IGNORE

ITERATIONS = (1, 3, 5, 7, 10)
_STEPPED = 2  # images that are shown by iteration
_MOST_COLUMNS = 5
_MOST_TAGS = 8


@dataclass(frozen=True)
class _Column:
    """A stage: its name, and how it paints a small copy of an image, with the classes it shows, or None for none."""

    name: str
    show: Callable[[Stages, Pixels], "tuple[Pixels, Labels] | None"]


def gallery(run: Run, images: ImageDataset | None, ground_truth: MaskDataset | None, count: int) -> list[Markup]:
    """Both sections of images, or a sentence that says why there are none."""
    if run.predictor is None:
        return [_section(element("p", NO_MODEL_YET))]
    if images is None or len(images) == 0:
        return [_section(element("p", "No images were given to show."))]
    shown = [stages_of(run, images, index) for index in evenly_spaced(images.image_ids, count)]
    stepped = shown[:: max(1, len(shown) - 1)][:_STEPPED] if run.refines else []
    side = side_for(len(shown) * _MOST_COLUMNS + len(stepped) * (len(ITERATIONS) + 2))
    known = ground_truth if ground_truth is not None and any(stages.name in ground_truth for stages in shown) else None
    palette = colours(len(run.classes))
    grid = _grid(run, shown, _stage_columns(run, known), side, tags=lambda stages: _tags(run, stages, palette))
    first = _section(
        element("p", _rule(len(shown), len(images), run), class_="lead"),
        *(element("p", note, class_="note") for note in _notes(run, known is not None)),
        _legend(run.classes, palette),
        grid,
    )
    return [first, _steps(run, stepped, known, side)] if stepped else [first]


def _section(*content: Markup) -> Markup:
    return element("section", element("h2", "Images"), *content, id="images")


def _steps(run: Run, stepped: Sequence[Stages], ground_truth: MaskDataset | None, side: int) -> Markup:
    after = {stages.name: by_iteration(run, stages, ITERATIONS) for stages in stepped}

    def column(place: int, iterations: int) -> _Column:
        return _Column(
            f"{iterations} iteration{'s' if iterations > 1 else ''}",
            lambda stages, image: _painted(image, classes_at(after[stages.name][place], image.shape[:2])),
        )

    steps = [column(place, iterations) for place, iterations in enumerate(ITERATIONS)]
    columns = [_Column("prediction", _prediction), *steps, *_truth_column(ground_truth)]
    which = "The first and the last of the images above" if len(stepped) > 1 else "The image above"
    words = (
        f"PAMR pulls the masks to the image's own boundaries (Fig. 9 of the paper). {which}; this run trains with "
        f"{run.recipe.pseudo_labels.iterations} iterations."
    )
    return element(
        "section",
        element("h2", "Refinement by iteration"),
        element("p", words, class_="lead"),
        _grid(run, stepped, columns, side),
        id="refinement",
    )


def _rule(count: int, total: int, run: Run) -> str:
    crop = run.recipe.transforms.crop
    which = f"All {total}" if count == total else f"{count} of {total}"
    rule = "" if count == total else ", evenly spaced over their IDs in alphabetical order; no one chose them"
    return f"{which} validation images{rule}. The network sees each as in validation: whole, at {crop} x {crop}."


def _notes(run: Run, has_truth: bool) -> list[str]:
    if run.is_cam:
        notes = [
            "This is the CAM baseline: its masks are class activation maps of the predicted tags, against a constant "
            "background. It has no refinement and no pseudo labels."
        ]
    else:
        refined = "Refinement: the same masks after PAMR. " if run.refines else "This run does not refine its masks. "
        notes = [
            "Prediction: the strongest of the network's own masks at each pixel, over all classes, whatever the "
            f"image's tags. {refined}Pseudo label: what the network would be trained for, which uses the true tags; "
            "ignored pixels are grey and dark."
        ]
    return notes if has_truth else [*notes, "There are no true masks for these images."]


def _stage_columns(run: Run, ground_truth: MaskDataset | None) -> list[_Column]:
    columns = [_Column("input", lambda _, image: (image, np.zeros((1, 1), dtype=np.int64)))]
    columns.append(_Column("CAM masks" if run.is_cam else "prediction", _prediction))
    if run.refines:
        columns.append(_Column("refinement", _refinement))
    if not run.is_cam:
        columns.append(_Column("pseudo label", _pseudo))
    return [*columns, *_truth_column(ground_truth)]


def _prediction(stages: Stages, image: Pixels) -> tuple[Pixels, Labels]:
    return _painted(image, classes_at(stages.masks, image.shape[:2]))


def _refinement(stages: Stages, image: Pixels) -> tuple[Pixels, Labels]:
    assert stages.refined is not None
    return _painted(image, classes_at(stages.refined, image.shape[:2]))


def _pseudo(stages: Stages, image: Pixels) -> tuple[Pixels, Labels]:
    assert stages.pseudo is not None
    return _painted(image, stages.pseudo, stages.pseudo == IGNORE)


def _truth_column(ground_truth: MaskDataset | None) -> list[_Column]:
    if ground_truth is None:
        return []

    def show(stages: Stages, image: Pixels) -> tuple[Pixels, Labels] | None:
        if stages.name not in ground_truth:
            return None
        mask = ground_truth[stages.name].astype(np.int64)
        return _painted(image, mask, mask == IGNORE_LABEL)

    return [_Column("ground truth", show)]


def _painted(image: Pixels, labels: Labels, ignored: NDArray[np.bool_] | None = None) -> tuple[Pixels, Labels]:
    return paint(image, labels, ignored), labels if ignored is None else labels[~ignored]


def _grid(
    run: Run,
    shown: Sequence[Stages],
    columns: Sequence[_Column],
    side: int,
    *,
    tags: Callable[[Stages], Markup] | None = None,
) -> Markup:
    """One body an image, so that a page break never parts an image from its tags."""
    bodies = []
    for stages in shown:
        image = small_copy(stages.pixels, side)
        cells = [element("td", _cell(run, stages.name, column, column.show(stages, image))) for column in columns]
        below = [element("strong", stages.name), tags(stages) if tags else ""]
        words = element("tr", element("td", *below, colspan=len(columns), class_="tags"))
        bodies.append(element("tbody", element("tr", *cells), words))
    head = element("thead", element("tr", *(element("th", column.name, scope="col") for column in columns)))
    content = element("table", head, *bodies, class_="gallery", style=f"--columns: {len(columns)}")
    return element("div", content, class_="scroll", tabindex=0, role="region", aria_label="images by stage")


def _cell(run: Run, name: str, column: _Column, found: tuple[Pixels, Labels] | None) -> Markup:
    if found is None:
        return element("span", "no mask", class_="note")
    image, labels = found
    height, width = image.shape[:2]
    classes = ", ".join(run.classes[value - 1] for value in np.unique(labels) if value > 0) or "background only"
    alt = f"{name}, {column.name}" if column.name == "input" else f"{name}, {column.name}: {classes}"
    return element("img", src=as_jpeg(image), alt=alt, width=width, height=height)


def _tags(run: Run, stages: Stages, palette: Sequence[str]) -> Markup:
    true: list[str] = [_true_tag(run, stages, k, palette) for k in stages.tags]
    ranked = sorted(stages.kept, key=lambda k: -stages.scores[k])
    predicted: list[str] = [
        _tag(
            f"{run.classes[k]} {percent(stages.scores[k], 0)}{'' if k in stages.tags else ' (not tagged)'}",
            palette[k + 1],
        )
        for k in ranked[:_MOST_TAGS]
    ]
    more = f"and {len(ranked) - _MOST_TAGS} more" if len(ranked) > _MOST_TAGS else ""
    return element("span", element("b", "true"), *(true or ["none"])) + element(
        "div", element("b", "predicted"), *(predicted or ["none"]), more
    )


def _true_tag(run: Run, stages: Stages, k: int, palette: Sequence[str]) -> Markup:
    missed = "" if k in stages.kept else f" (missed, {percent(stages.scores[k], 0)})"
    return _tag(run.classes[k] + missed, palette[k + 1])


def _tag(words: str, colour: str) -> Markup:
    dot = element("rect", width=10, height=10, rx=2, fill=colour)
    swatch = element("svg", dot, viewBox="0 0 10 10", width=10, height=10, aria_hidden="true")
    return element("span", swatch, words, class_="tag")


def _legend(classes: Sequence[str], palette: Sequence[str]) -> Markup:
    keys = [element("li", _tag(name, colour)) for name, colour in zip(classes, palette[1:], strict=True)]
    return element("ul", *keys, class_="legend", aria_label="colours of the classes")
