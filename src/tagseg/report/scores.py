"""Masks against the ground truth, for each evaluation and each protocol apart."""

from collections.abc import Sequence

import numpy as np

from tagseg.evaluation.metrics import ConfusionMatrix, mean
from tagseg.evaluation.result import EVALUATION_FILE, Evaluation
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS
from tagseg.report.heat_map import MOST_CLASSES, heat_map
from tagseg.report.markup import Markup, element, percent
from tagseg.report.run import Run
from tagseg.report.tables import bar, table

PROTOCOLS = {
    PREDICTED_TAGS: "the model's own scores decide which classes an image may have, as for a new image",
    TRUE_TAGS: "the image's true tags decide which classes it may have, as for pseudo labels",
}
_MEASURES = {"IoU": "iou", "precision": "precision", "recall": "recall"}


def read_evaluations(run: Run, more: Sequence[Evaluation]) -> list[Evaluation]:
    """The evaluation in the run's folder, if there is one, and others."""
    path = run.folder / EVALUATION_FILE
    own = [Evaluation.from_json(path.read_text())] if path.is_file() else []
    return [*own, *more]


def scores(evaluations: Sequence[Evaluation]) -> Markup:
    """The section of evaluations; a sentence where there is none."""
    heading = element("h2", "Evaluation")
    if not evaluations:
        words = "No evaluation: there is no evaluation.json in the run's folder, and none was given."
        return element("section", heading, element("p", words), id="evaluation")
    means = element("p", "Numbers of one protocol are not to be compared with numbers of the other.", class_="lead")
    parts = [part for place, evaluation in enumerate(evaluations, start=1) for part in _one(place, evaluation)]
    return element("section", heading, means, _means(evaluations), *parts, id="evaluation")


def settings_in_words(evaluation: Evaluation) -> str:
    """Under which settings an evaluation was made."""
    used = evaluation.settings
    scales = ", ".join(f"{scale:g}" for scale in used.scales)
    without = f" ({evaluation.without_masks} more have no mask)" if evaluation.without_masks else ""
    return (
        f"{evaluation.images} images{without}; scale{'s' if len(used.scales) > 1 else ''} {scales}"
        f"{' with flips' if used.flip else ''}; CRF {'on' if evaluation.crf else 'off'}; thresholds from "
        f"{used.thresholds_from}"
    )


def _means(evaluations: Sequence[Evaluation]) -> Markup:
    rows = []
    for place, evaluation in enumerate(evaluations, start=1):
        for protocol, matrix in evaluation.confusion.items():
            name = element("span", protocol, class_="protocol")
            columns = [getattr(matrix, measure) for measure in _MEASURES.values()]
            counted = int((~np.isnan(matrix.iou)).sum())
            rows.append(
                [
                    f"{place}. {evaluation.model['name']}",
                    name,
                    *(percent(mean(values)) for values in columns),
                    percent(evaluation.mean_iou(protocol, background=False)),
                    f"{counted} of {matrix.classes}",
                ]
            )
    head = ("evaluation", "protocol", "mean IoU", "precision", "recall", "mean IoU without background", "classes")
    return table("Means over the classes that occur, background included", head, rows, classes="numbers")


def _one(place: int, evaluation: Evaluation) -> list[Markup]:
    parts = [element("h3", f"{place}. {evaluation.model['name']}"), element("p", settings_in_words(evaluation) + ".")]
    if evaluation.caveat:
        parts.append(element("p", evaluation.caveat, class_="warning", role="note"))
    for protocol, matrix in evaluation.confusion.items():
        names = ("background", *evaluation.class_names)
        meaning = f": {PROTOCOLS[protocol]}." if protocol in PROTOCOLS else "."
        parts.append(element("p", "Protocol ", element("span", protocol, class_="protocol"), meaning))
        both = _per_class(protocol, names, matrix), _confusion(protocol, names, matrix)
        parts.append(element("div", *both, class_="pair"))
    return parts


def _per_class(protocol: str, names: Sequence[str], matrix: ConfusionMatrix) -> Markup:
    columns = [getattr(matrix, measure) for measure in _MEASURES.values()]

    def row(name: str, values: Sequence[float]) -> list[str]:
        return [name, *(bar(value, percent(value), kind=kind) for kind, value in enumerate(values, start=1))]

    rows = [row(name, [float(values[index]) for values in columns]) for index, name in enumerate(names)]
    rows.append(row("mean", [mean(values) for values in columns]))
    return table(f"Per class, {protocol}", ("class", *_MEASURES), rows, classes="bars", foot=1)


def _confusion(protocol: str, names: Sequence[str], matrix: ConfusionMatrix) -> Markup:
    kept = np.sort(np.argsort(-matrix.counts.sum(1), kind="stable")[:MOST_CLASSES])
    totals = matrix.counts.sum(1, keepdims=True)
    shares = (matrix.counts / np.maximum(totals, 1))[np.ix_(kept, kept)]
    shown = [names[index] for index in kept]
    note = "Of the pixels of the row's class, the share predicted as the column's class, in per cent."
    if len(shown) < len(names):
        note += f" The {len(shown)} classes with the most pixels of {len(names)}."

    def describe(row: int, column: int) -> str:
        pixels = matrix.counts[kept[row], kept[column]]
        return f"{percent(shares[row, column])} of {shown[row]} predicted as {shown[column]} ({pixels:,} pixels)"

    return heat_map(
        f"Confusion, {protocol}", shown, shares.tolist(), describe, note=note, rows="ground truth", columns="prediction"
    )
