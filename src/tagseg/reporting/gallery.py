"""The pictures: what each stage makes of them (Fig. 6), and the refinement step by step (Fig. 9)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagseg.data.dataset import ImageTags, Pixels
from tagseg.data.truth import IGNORE as NOT_JUDGED, PixelTruth
from tagseg.reporting.images import as_jpeg, colours, paint, side_for, small_copy
from tagseg.reporting.markup import Markup, element, percent
from tagseg.reporting.run import NO_MODEL_YET, Run
from tagseg.reporting.stages import Labels, Stages, by_iteration, classes_at, evenly_spaced, stages_of
from tagseg.training.pseudo import IGNORE

ITERATIONS = (1, 3, 5, 7, 10)
_STEPPED = 2  # pictures that are shown by iteration
_MOST_COLUMNS = 5
_MOST_TAGS = 8


@dataclass(frozen=True)
class _Column:
    """A stage: its name, and how it paints a small copy of a picture, with the classes it shows, or None for none."""

    name: str
    show: Callable[[Stages, Pixels], "tuple[Pixels, Labels] | None"]


def gallery(run: Run, pictures: ImageTags | None, truth: PixelTruth | None, count: int) -> list[Markup]:
    """Both sections of pictures, or a sentence that says why there are none."""
    if run.predictor is None:
        return [_section(element("p", NO_MODEL_YET))]
    if pictures is None or len(pictures) == 0:
        return [_section(element("p", "No pictures were given to show."))]
    shown = [stages_of(run, pictures, index) for index in evenly_spaced(pictures.names, count)]
    stepped = shown[:: max(1, len(shown) - 1)][:_STEPPED] if run.refines else []
    side = side_for(len(shown) * _MOST_COLUMNS + len(stepped) * (len(ITERATIONS) + 2))
    known = truth if truth is not None and any(stages.name in truth for stages in shown) else None
    palette = colours(len(run.classes))
    grid = _grid(run, shown, _stage_columns(run, known), side, tags=lambda stages: _tags(run, stages, palette))
    first = _section(
        element("p", _rule(len(shown), len(pictures), run), class_="lead"),
        *(element("p", note, class_="note") for note in _notes(run, known is not None)),
        _legend(run.classes, palette),
        grid,
    )
    return [first, _steps(run, stepped, known, side)] if stepped else [first]


def _section(*content: Markup) -> Markup:
    return element("section", element("h2", "Pictures"), *content, id="pictures")


def _steps(run: Run, stepped: Sequence[Stages], truth: PixelTruth | None, side: int) -> Markup:
    after = {stages.name: by_iteration(run, stages, ITERATIONS) for stages in stepped}

    def column(place: int, iterations: int) -> _Column:
        return _Column(
            f"{iterations} iteration{'s' if iterations > 1 else ''}",
            lambda stages, picture: _painted(picture, classes_at(after[stages.name][place], picture.shape[:2])),
        )

    steps = [column(place, iterations) for place, iterations in enumerate(ITERATIONS)]
    columns = [_Column("prediction", _prediction), *steps, *_truth_column(truth)]
    which = "The first and the last of the pictures above" if len(stepped) > 1 else "The picture above"
    words = (
        f"PAMR pulls the masks to the picture's own boundaries (Fig. 9 of the paper). {which}; this run trains with "
        f"{run.recipe.supervision.iterations} iterations."
    )
    return element(
        "section",
        element("h2", "Refinement by iteration"),
        element("p", words, class_="lead"),
        _grid(run, stepped, columns, side),
        id="refinement",
    )


def _rule(count: int, total: int, run: Run) -> str:
    crop = run.recipe.pictures.crop
    which = f"All {total}" if count == total else f"{count} of {total}"
    rule = "" if count == total else ", evenly spaced over their IDs in alphabetical order; no one chose them"
    return f"{which} validation pictures{rule}. The network sees each as in validation: whole, at {crop} x {crop}."


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
            f"picture's tags. {refined}Pseudo label: what the network would be trained for, which uses the true tags; "
            "ignored pixels are grey and dark."
        ]
    return notes if has_truth else [*notes, "There are no true masks for these pictures."]


def _stage_columns(run: Run, truth: PixelTruth | None) -> list[_Column]:
    columns = [_Column("input", lambda _, picture: (picture, np.zeros((1, 1), dtype=np.int64)))]
    columns.append(_Column("CAM masks" if run.is_cam else "prediction", _prediction))
    if run.refines:
        columns.append(_Column("refinement", _refinement))
    if not run.is_cam:
        columns.append(_Column("pseudo label", _pseudo))
    return [*columns, *_truth_column(truth)]


def _prediction(stages: Stages, picture: Pixels) -> tuple[Pixels, Labels]:
    return _painted(picture, classes_at(stages.masks, picture.shape[:2]))


def _refinement(stages: Stages, picture: Pixels) -> tuple[Pixels, Labels]:
    assert stages.refined is not None
    return _painted(picture, classes_at(stages.refined, picture.shape[:2]))


def _pseudo(stages: Stages, picture: Pixels) -> tuple[Pixels, Labels]:
    assert stages.pseudo is not None
    return _painted(picture, stages.pseudo, stages.pseudo == IGNORE)


def _truth_column(truth: PixelTruth | None) -> list[_Column]:
    if truth is None:
        return []

    def show(stages: Stages, picture: Pixels) -> tuple[Pixels, Labels] | None:
        if stages.name not in truth:
            return None
        mask = truth[stages.name].astype(np.int64)
        return _painted(picture, mask, mask == NOT_JUDGED)

    return [_Column("truth", show)]


def _painted(picture: Pixels, labels: Labels, ignored: NDArray[np.bool_] | None = None) -> tuple[Pixels, Labels]:
    return paint(picture, labels, ignored), labels if ignored is None else labels[~ignored]


def _grid(
    run: Run,
    shown: Sequence[Stages],
    columns: Sequence[_Column],
    side: int,
    *,
    tags: Callable[[Stages], Markup] | None = None,
) -> Markup:
    """One body a picture, so that a page break never parts a picture from its tags."""
    bodies = []
    for stages in shown:
        picture = small_copy(stages.pixels, side)
        cells = [element("td", _cell(run, stages.name, column, column.show(stages, picture))) for column in columns]
        below = [element("strong", stages.name), tags(stages) if tags else ""]
        words = element("tr", element("td", *below, colspan=len(columns), class_="tags"))
        bodies.append(element("tbody", element("tr", *cells), words))
    head = element("thead", element("tr", *(element("th", column.name, scope="col") for column in columns)))
    content = element("table", head, *bodies, class_="gallery", style=f"--columns: {len(columns)}")
    return element("div", content, class_="scroll", tabindex=0, role="region", aria_label="pictures by stage")


def _cell(run: Run, name: str, column: _Column, found: tuple[Pixels, Labels] | None) -> Markup:
    if found is None:
        return element("span", "no mask", class_="note")
    picture, labels = found
    height, width = picture.shape[:2]
    classes = ", ".join(run.classes[value - 1] for value in np.unique(labels) if value > 0) or "background only"
    alt = f"{name}, {column.name}" if column.name == "input" else f"{name}, {column.name}: {classes}"
    return element("img", src=as_jpeg(picture), alt=alt, width=width, height=height)


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
