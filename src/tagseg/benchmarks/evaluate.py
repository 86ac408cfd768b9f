"""A whole evaluation of a person's own model and images, from files to figures: without CRF and with it, in turns."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tagseg.benchmarks.timing import Contender, Findings, compare
from tagseg.data import DataSource
from tagseg.evaluation.evaluate import evaluate, images_with_masks
from tagseg.predict.predictor import load


def open_evaluate(
    model: str | Path, data: str | Path | DataSource, *, threshold: float | None, device: torch.device
) -> Callable[[torch.device], Findings]:
    """The benchmark of a model over images with masks; what is missing is said now, before anything is measured."""
    predictor, source = load(model, device=str(device)), DataSource.of(data)
    if threshold is not None:
        predictor.settings = predictor.settings.with_threshold(threshold)
    images, ground_truth = source.open(predictor.classes), source.open_masks(predictor.classes)
    count = len(images_with_masks(predictor, images, ground_truth))
    run = partial(evaluate, predictor, images, ground_truth, tta=True)
    ways = [
        Contender("without CRF", partial(run, crf=False), images=count),
        Contender("with CRF", partial(run, crf=True), images=count),
    ]
    scales = ", ".join(f"{scale:g}" for scale in predictor.settings.scales)
    title = f"Evaluation, {predictor.description['backbone']}, {count:,} images from files to figures"
    note = f"Scales {scales}{' with flips' if predictor.settings.flip else ''}; predicted and true tags, in one pass."
    return lambda place: Findings((compare(title, ways, device=place, note=note, long=True),))
