"""The run over time, out of its journal."""

from math import isfinite, nan
from typing import Any

from tagseg.report.lines import COLOURS, Line, Marks, line_chart
from tagseg.report.markup import Markup, element
from tagseg.report.run import NO_MODEL_YET, Run
from tagseg.report.tables import table

_TAG_METRICS = ("loss", "classification", "mAP")
_NO_METRICS = ("kind", "step", "epoch", *_TAG_METRICS)


def curves(run: Run) -> Markup:
    """The section of curves; a sentence where nothing has been logged."""
    train, validation = run.lines("train"), run.lines("validation")
    if not train and not validation:
        return _section(element("p", "Nothing has been logged yet."))
    marks = _marks(run, train, validation)
    per_epoch = _steps_per_epoch(validation)
    charts = _training_charts(run, train, per_epoch, marks)
    if not validation:
        return _section(element("div", *charts, class_="charts"))
    charts += _tag_charts(run, validation, per_epoch, marks)
    pixel = sorted({key for line in validation for key in line} - set(_NO_METRICS))
    content = [element("p", _kept(run), class_="lead"), element("div", *charts, class_="charts")]
    if pixel:
        content += _pixel_charts(validation, pixel, per_epoch, marks)
    return _section(*content, _numbers(validation, pixel))


def _section(*content: Markup) -> Markup:
    return element("section", element("h2", "Curves"), *content, id="curves")


def _kept(run: Run) -> str:
    if not run.kept_epoch:
        return NO_MODEL_YET
    if run.recipe.validation.checkpoint == "last":
        return f"The model is the network after the last epoch that was validated, epoch {run.kept_epoch}."
    after = f" after epoch {_phase(run)}" if _phase(run) else ""
    return (
        f"The model is the network of epoch {run.kept_epoch}, which has the lowest validation loss{after}: that needs "
        "image tags only."
    )


def _training_charts(run: Run, train: list[dict[str, Any]], per_epoch: float, marks: Marks) -> list[Markup]:
    if not train:
        return []
    if run.is_cam:
        return [line_chart("Training loss (tags)", [_line("tags", train, "loss", per_epoch)], marks, low=0)]
    with_masks = [line for line in train if line["epoch"] > _phase(run)]
    lines = [
        _line("total", train, "loss", per_epoch),
        _line("tags", train, "classification", per_epoch),
        _line("masks", with_masks, "segmentation", per_epoch),
    ]
    charts = [line_chart("Training loss", lines, marks, low=0)]
    supervised = _line("images", with_masks, "supervised", per_epoch, factor=100)
    if not _has_values(supervised):
        return charts
    note = "Only such an image trains the masks: its pseudo label has all of its classes."
    charts.append(
        line_chart("Images with a full pseudo label", [supervised], marks, note=note, low=0, high=100, unit=" %")
    )
    return charts


def _tag_charts(run: Run, validation: list[dict[str, Any]], per_epoch: float, marks: Marks) -> list[Markup]:
    loss = _line("validation loss", validation, "loss", per_epoch)
    note = ""
    if 0 < _phase(run) < marks.end:
        note = "The line is cut where the masks' loss joins: before and after are not to be compared."
        cut = [(x, y) for x, y in loss.points if x <= _phase(run)]
        loss = Line(loss.name, [*cut, (_phase(run), nan), *loss.points[len(cut) :]])
    charts = [line_chart("Validation loss", [loss], marks, note=note)] if _has_values(loss) else []
    precision = _line("mAP", validation, "mAP", per_epoch)
    if _has_values(precision):
        charts.append(line_chart("Tags: mean average precision", [precision], marks, unit=" %"))
    return charts


def _pixel_charts(validation: list[dict[str, Any]], names: list[str], per_epoch: float, marks: Marks) -> list[Markup]:
    lines = [line for line in (_line(name, validation, name, per_epoch) for name in names) if _has_values(line)]
    charts = [
        line_chart("Measured on masks", lines[start : start + COLOURS], marks)
        for start in range(0, len(lines), COLOURS)
    ]
    note = "These numbers need true masks. They are written down to be looked at and never choose the model."
    return [element("h3", "Pixel metrics"), element("p", note, class_="note"), element("div", *charts, class_="charts")]


def _numbers(validation: list[dict[str, Any]], pixel: list[str]) -> Markup:
    names = [*_TAG_METRICS, *pixel]
    rows = [[str(line["epoch"]), *(_shown(line.get(name)) for name in names)] for line in validation]
    body = table("Validation after each epoch", ("epoch", *names), rows, classes="numbers")
    return element("details", element("summary", "Numbers by epoch"), body)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _marks(run: Run, train: list[dict[str, Any]], validation: list[dict[str, Any]]) -> Marks:
    last = max(line["step"] for line in (*train, *validation))
    if not validation:  # how many steps an epoch has is known once one has ended
        return Marks("step", last)
    return Marks(
        "epoch",
        last / _steps_per_epoch(validation),
        phase=_phase(run),
        phase_name="shaded: tags only, masks are not trained",
        chosen=run.kept_epoch,
        chosen_name=f"kept: epoch {run.kept_epoch}",
    )


def _phase(run: Run) -> int:
    return 0 if run.is_cam else run.recipe.training.classification_epochs


def _steps_per_epoch(validation: list[dict[str, Any]]) -> float:
    return validation[-1]["step"] / validation[-1]["epoch"] if validation else 1.0


def _line(name: str, lines: list[dict[str, Any]], key: str, per_epoch: float, *, factor: float = 1.0) -> Line:
    points = [(line["step"] / per_epoch, line.get(key)) for line in lines]
    return Line(name, [(x, nan if y is None else factor * y) for x, y in points])


def _has_values(line: Line) -> bool:
    return any(isfinite(y) for _, y in line.points)
