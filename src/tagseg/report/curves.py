"""Training curves of a run, from its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from tagseg.report.plots import MAX_LINES, Chart, Line, XAxis, line_chart
from tagseg.report.run_data import RunData

_LABEL_METRICS = ("loss", "classification", "mAP")
_NOT_PIXEL_METRICS = {"kind", "step", "epoch", *_LABEL_METRICS}

Metrics = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Curves:
    """The curves of a run.

    Attributes:
        charts: Charts of the losses and of the label metrics.
        pixel_charts: Charts of metrics that need ground-truth masks.
        columns: Names of the validation metrics.
        rows: Values of these metrics by epoch, the epoch first.
    """

    charts: list[Chart]
    pixel_charts: list[Chart]
    columns: list[str]
    rows: list[list[str]]


def training_curves(run: RunData) -> Curves:
    """Draw all curves that the run's metrics have values for."""
    train, validation = run.metrics_of("train"), run.metrics_of("validation")
    if not train and not validation:
        return Curves([], [], [], [])
    x_axis, steps_per_epoch = _x_axis(run, train, validation), _steps_per_epoch(validation)
    charts = [
        *_training_charts(run, train, steps_per_epoch, x_axis),
        *_validation_charts(run, validation, steps_per_epoch, x_axis),
    ]
    pixel_metrics = sorted({key for line in validation for key in line} - _NOT_PIXEL_METRICS)
    columns = [*_LABEL_METRICS, *pixel_metrics]
    rows = [[str(line["epoch"]), *(_format(line.get(name)) for name in columns)] for line in validation]
    return Curves(charts, _pixel_charts(validation, pixel_metrics, steps_per_epoch, x_axis), columns, rows)


def _training_charts(run: RunData, train: Metrics, steps_per_epoch: float, x_axis: XAxis) -> list[Chart]:
    if run.is_cam:
        loss = _line("classification", train, "loss", steps_per_epoch)
        return [line_chart("Training loss (classification)", [loss], x_axis, low=0)] if loss.values else []
    if run.is_supervised:
        loss = _line("cross-entropy", train, "loss", steps_per_epoch)
        return [line_chart("Training loss (cross-entropy of the masks)", [loss], x_axis, low=0)] if loss.values else []
    self_supervised = [line for line in train if line["epoch"] > run.classification_epochs]
    losses = [
        _line("total", train, "loss", steps_per_epoch),
        _line("classification", train, "classification", steps_per_epoch),
        _line("segmentation", self_supervised, "segmentation", steps_per_epoch),
    ]
    losses = [line for line in losses if line.values]
    charts = [line_chart("Training loss", losses, x_axis, low=0)] if losses else []
    complete = _line("images", self_supervised, "labeled_share", steps_per_epoch, factor=100)
    if complete.values:
        title = "Images with a complete pseudo label"
        note = "The segmentation loss uses only these: their pseudo labels contain every class of the image's tags."
        charts.append(line_chart(title, [complete], x_axis, note=note, low=0, high=100, unit=" %"))
    return charts


def _validation_charts(run: RunData, validation: Metrics, steps_per_epoch: float, x_axis: XAxis) -> list[Chart]:
    loss = _line("validation loss", validation, "loss", steps_per_epoch)
    note, phase_end = "", run.classification_epochs
    if 0 < phase_end < x_axis.end:
        note = "The segmentation loss is added at the gap, so the values before and after it cannot be compared."
        first_phase = [point for point in loss.points if point[0] <= phase_end]
        loss = Line(loss.name, [*first_phase, (phase_end, nan), *loss.points[len(first_phase) :]])
    charts = [line_chart("Validation loss", [loss], x_axis, note=note)] if loss.values else []
    precision = _line("mAP", validation, "mAP", steps_per_epoch)
    if precision.values:
        charts.append(line_chart("Predicted labels: mean average precision", [precision], x_axis, unit=" %"))
    return charts


def _pixel_charts(validation: Metrics, names: Sequence[str], steps_per_epoch: float, x_axis: XAxis) -> list[Chart]:
    lines = [_line(name, validation, name, steps_per_epoch) for name in names]
    lines = [line for line in lines if line.values]
    return [
        line_chart("Measured on masks", lines[start : start + MAX_LINES], x_axis)
        for start in range(0, len(lines), MAX_LINES)
    ]


def _x_axis(run: RunData, train: Metrics, validation: Metrics) -> XAxis:
    last_step = max(line["step"] for line in (*train, *validation))
    if not validation:  # the number of steps per epoch is known only after the first epoch
        return XAxis("step", last_step)
    return XAxis(
        "epoch",
        last_step / _steps_per_epoch(validation),
        phase_end=run.classification_epochs,
        phase_name="no segmentation loss yet",
        marker=run.checkpoint_epoch,
        marker_name=run.checkpoint_name,
    )


def _steps_per_epoch(validation: Metrics) -> float:
    return validation[-1]["step"] / validation[-1]["epoch"] if validation else 1.0


def _line(name: str, metrics: Metrics, key: str, steps_per_epoch: float, *, factor: float = 1.0) -> Line:
    """Build the line of one metric; a value that is missing leaves a gap."""
    values = [line.get(key) for line in metrics]
    points = [
        (line["step"] / steps_per_epoch, factor * value if isinstance(value, int | float) else nan)
        for line, value in zip(metrics, values, strict=True)
    ]
    return Line(name, points)


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"
