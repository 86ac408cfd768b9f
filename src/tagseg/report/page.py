"""The report of a run: one self-contained HTML file, rendered from the Jinja2 templates beside this module."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from tagseg._files import write_text, writing
from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import MaskDataset
from tagseg.errors import ConfigError, DataError
from tagseg.evaluation.metrics import ConfusionMatrix, mean
from tagseg.evaluation.result import Evaluation
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS
from tagseg.predict.settings import THRESHOLD_ORIGINS
from tagseg.report.curves import training_curves
from tagseg.report.diagnosis import diagnose_run
from tagseg.report.doubtful_tags import find_doubtful_tags
from tagseg.report.examination import Examination, examine
from tagseg.report.gallery import make_gallery
from tagseg.report.plots import MAX_CLASSES, Chart, heat_map
from tagseg.report.run_data import RunData, read_evaluation, read_run

REPORT_FILE = "report.html"
CHECKED_TRAINING_IMAGES = 300  # whose tags are checked by default
_TEMPLATE = "report.html.j2"
_METHODS = {
    "single-stage": "Single-stage segmentation from image tags",
    "cam": "CAM baseline",
    "supervised": "Supervised segmentation from masks",
}
_PROTOCOLS = {
    PREDICTED_TAGS: "the classes of an image are those that the model predicts, as for a new image",
    TRUE_TAGS: "the classes of an image are those of its ground-truth tags, as for pseudo labels",
}
_METRICS = {"IoU": "iou", "precision": "precision", "recall": "recall"}  # heading -> attribute


@dataclass(frozen=True)
class ClassTable:
    """Metrics of one evaluation under one protocol.

    Attributes:
        protocol: Name of the protocol.
        rows: Class name and metrics, background first.
        means: Mean of each metric over the classes that occur.
        foreground_iou: Mean IoU without the background.
        num_counted: Number of classes that occur.
        confusion: Chart of the confusion matrix.
    """

    protocol: str
    rows: list[tuple[str, list[float]]]
    means: list[float]
    foreground_iou: float
    num_counted: int
    confusion: Chart


def write_page(
    run: str | Path,
    out: str | Path | None = None,
    *,
    images: ImageDataset | None,
    masks: MaskDataset | None = None,
    train_images: ImageDataset | None = None,
    count: int = 8,
    check_tags: int = CHECKED_TRAINING_IMAGES,
    missing: Sequence[str] = (),
    progress: bool = False,
) -> Path:
    """Write the report of a run into one HTML file that needs no network, no scripts and no other files.

    The model runs on all validation images and on some training images, to examine its masks and to find wrong tags.
    Parts that the run does not have yet are replaced by a sentence that says so.

    Args:
        run: Folder of the run.
        out: File to write; None writes report.html into the run folder.
        images: Validation images; None shows none.
        masks: Ground-truth masks of these images, shown beside the predictions.
        train_images: Training images; None counts and examines none.
        count: Number of images to show.
        check_tags: Number of training images to examine, evenly spaced.
        missing: Why images could not be opened, a line each; the page says so.
        progress: Show a progress bar.

    Returns:
        Path of the file.

    Raises:
        ConfigError: If `run` is not the folder of a run, or `out`, `count` or `check_tags` cannot be used.
        DataError: If the images or masks have other classes than the run, or evaluation.json cannot be read.
    """
    if count < 1:
        raise ConfigError(f"the number of images to show must be 1 or more, got {count}")
    if check_tags < 0:
        raise ConfigError(f"the number of training images whose tags are checked must be 0 or more, got {check_tags}")
    run_data = read_run(Path(run))
    for kind, dataset in (("images", images), ("training images", train_images), ("masks", masks)):
        _check_classes(kind, dataset, run_data)
    path = run_data.folder / REPORT_FILE if out is None else Path(out)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder", "name a file with {out}")
    evaluation = read_evaluation(run_data)
    splits = {"training": train_images, "validation": images}
    examinations = [
        examine(
            run_data.predictor, dataset, split, count=check_tags if split == "training" else None, progress=progress
        )
        for split, dataset in splits.items()
        if run_data.predictor is not None and dataset is not None
    ]
    page = _render(run_data, splits, masks, evaluation, count, examinations, missing)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path


def template_environment(package: str) -> jinja2.Environment:
    """Templates of a package, in which everything is escaped."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _check_classes(kind: str, dataset: ImageDataset | MaskDataset | None, run: RunData) -> None:
    """Refuse classes with other names or in another order, which would be confused."""
    if dataset is not None and tuple(dataset.classes) != run.classes:
        raise DataError(
            f"the {kind} have the classes {', '.join(dataset.classes)}, but the run has {', '.join(run.classes)}",
            "open them with the run's classes, in its order",
        )


def _render(
    run: RunData,
    images: Mapping[str, ImageDataset | None],
    masks: MaskDataset | None,
    evaluation: Evaluation | None,
    count: int,
    examinations: Sequence[Examination],
    missing: Sequence[str],
) -> str:
    environment = template_environment("tagseg.report")
    environment.filters["percent"] = _percent
    doubtful_tags = None
    if run.predictor is not None and not run.is_supervised:  # whose scores are of single pixels
        thresholds = run.predictor.settings.thresholds_per_class(len(run.classes))
        doubtful_tags = find_doubtful_tags(examinations, thresholds)
    readable = next((part.images for part in examinations if part.split == "validation"), None)
    return environment.get_template(_TEMPLATE).render(
        run=run,
        name=run.folder.resolve().name,
        summary=_summary(run),
        tuned_on_masks=_tuned_on_masks(run, evaluation),
        protocols=_PROTOCOLS,
        threshold_origins=THRESHOLD_ORIGINS,
        used_protocols=list(evaluation.confusion) if evaluation else [],
        findings=diagnose_run(run, images, examinations, doubtful_tags, missing),
        examined=_describe_examined(examinations),
        doubtful_tags=doubtful_tags,
        gallery=make_gallery(run, readable, masks, count) if readable else None,
        curves=training_curves(run),
        evaluation=evaluation,
        class_tables=_class_tables(evaluation) if evaluation else [],
        metrics=list(_METRICS),
        tag_counts={split: _count_tags(split, dataset) for split, dataset in images.items() if dataset},
        settings=list(_settings_groups(run.config)),
    )


def _summary(run: RunData) -> list[str]:
    """Return the facts of the page's first line."""
    data, epochs = run.config.get("data", {}), run.recipe.training.epochs
    finished = max((line["epoch"] for line in run.metrics_of("validation")), default=0)
    image_counts = [
        f"{data[split]['image_count']:,} {words} images"
        for split, words in (("train", "training"), ("validation", "validation"))
        if isinstance(data.get(split), dict) and isinstance(data[split].get("image_count"), int)
    ]
    progress = f"{epochs} epoch{'' if epochs == 1 else 's'}" if finished == epochs else f"{finished} of {epochs} epochs"
    return [
        f"{_METHODS[run.recipe.model.method]} with {run.recipe.model.backbone}",
        f"{len(run.classes)} class{'' if len(run.classes) == 1 else 'es'}",
        *image_counts,
        f"{progress} ({run.checkpoint_name})",
        *([_duration(run.train_state.seconds)] if run.train_state else []),
    ]


def _describe_examined(examinations: Sequence[Examination]) -> str:
    """Say how many images of each split the model was run on; empty if on none."""
    counts = [(len(part.images), part.total, part.split) for part in examinations if len(part.images)]
    return " and ".join(
        f"{'all' if count == total else f'{count:,} of'} {total:,} {split} images" for count, total, split in counts
    )


def _tuned_on_masks(run: RunData, evaluation: Evaluation | None) -> list[str]:
    """Name everything whose settings were tuned on ground-truth masks."""
    names = ["the evaluation"] if evaluation and evaluation.caveat else []
    if run.predictor is not None and run.predictor.settings.thresholds_from == "masks":
        names.insert(0, "the model's settings")
    return names


def _class_tables(evaluation: Evaluation) -> list[ClassTable]:
    """Return the metrics of an evaluation, one table for each protocol."""
    names = ("background", *evaluation.class_names)
    tables = []
    for protocol, matrix in evaluation.confusion.items():
        columns = [getattr(matrix, metric) for metric in _METRICS.values()]
        tables.append(
            ClassTable(
                protocol=protocol,
                rows=[(name, [float(values[index]) for values in columns]) for index, name in enumerate(names)],
                means=[mean(values) for values in columns],
                foreground_iou=evaluation.mean_iou(protocol, background=False),
                num_counted=matrix.num_counted,
                confusion=_confusion_chart(protocol, names, matrix),
            )
        )
    return tables


def _confusion_chart(protocol: str, names: Sequence[str], matrix: ConfusionMatrix) -> Chart:
    return _share_chart(
        f"Confusion, {protocol}",
        names,
        matrix.counts,
        matrix.counts.sum(1),
        note="Percentage of the pixels of the row's class that are predicted as the column's class.",
        tooltip="{share} of {row} predicted as {column} ({count:,} pixels)",
        row_label="ground truth",
        column_label="prediction",
    )


def _count_tags(split: str, images: ImageDataset) -> dict[str, Any]:
    """Count the tags of a split, and which of them occur together."""
    tags = images.labels.numpy().astype(np.int64)  # [N, C]
    joint_counts = tags.T @ tags
    counts = joint_counts.diagonal()
    return {
        "image_count": len(images),
        "tags_per_image": tags.sum() / len(images),
        "max_count": max(1, int(counts.max())),
        "counts": counts.tolist(),
        "co_occurrence": _share_chart(
            f"Co-occurrence of tags, {split} images",
            images.classes,
            joint_counts,
            counts,
            note="Percentage of the images with the row's tag that also have the column's tag.",
            tooltip="{count} of {total} images with {row} also have {column}",
            row_label="images with this tag",
            column_label="also have this tag",
        ),
    }


def _share_chart(
    title: str,
    names: Sequence[str],
    counts: NDArray[np.int64],
    totals: NDArray[np.int64],
    *,
    note: str,
    tooltip: str,
    row_label: str,
    column_label: str,
) -> Chart:
    """Draw which share of each row's total falls on each column, for the classes with the highest totals.

    Args:
        title: What the chart shows.
        names: Class names.
        counts: Counts by row and column, [C, C].
        totals: Total of each row, [C].
        note: Sentence below the title.
        tooltip: Format of a cell's tooltip, of `share`, `count`, `total`, `row` and `column`.
        row_label: What a row is.
        column_label: What a column is.
    """
    class_indices = np.sort(np.argsort(-totals, kind="stable")[:MAX_CLASSES])
    if len(class_indices) < len(names):
        note += f" The {len(class_indices)} most frequent of {len(names)} classes."
    shares = counts[np.ix_(class_indices, class_indices)] / np.maximum(totals[class_indices, None], 1)

    def describe(row: int, column: int) -> str:
        return tooltip.format(
            share=_percent(shares[row, column]),
            count=counts[class_indices[row], class_indices[column]],
            total=totals[class_indices[row]],
            row=names[class_indices[row]],
            column=names[class_indices[column]],
        )

    return heat_map(
        title,
        [names[index] for index in class_indices],
        shares.tolist(),
        describe,
        note=note,
        row_label=row_label,
        column_label=column_label,
    )


def _settings_groups(config: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the name and the settings of each group of the configuration: recipe, data, versions."""
    yield from _flatten("", config["recipe"])
    for name in ("data", "versions"):
        yield from _flatten(name, config.get(name, {}))


def _flatten(name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    plain_values = [(key, _format_setting(value)) for key, value in values.items() if not isinstance(value, Mapping)]
    if plain_values:
        yield name, plain_values
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(f"{name}: {key}" if name else key, value)


def _format_setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "auto"
    return ", ".join(map(_format_setting, value)) if isinstance(value, list) else str(value)


def _percent(share: float, digits: int = 1) -> str:
    """Format a share in percent; a dash for NaN."""
    return "-" if np.isnan(share) else f"{100 * share:.{digits}f} %"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
