"""A whole evaluation of a person's own model and pictures, from files to figures: without CRF and with it, in turns."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tagseg.benchmarks.timing import Contender, Findings, compare
from tagseg.evaluation.judge import judged_indices
from tagseg.evaluation.run import evaluate
from tagseg.inference.predictor import load
from tagseg.source import Source


def open_evaluate(
    model: str | Path, data: str | Path | Source, *, cutoff: float | None, device: torch.device
) -> Callable[[torch.device], Findings]:
    """The benchmark of a model over pictures with masks; what is missing is said now, before anything is measured."""
    predictor, source = load(model, device=str(device)), Source.of(data)
    if cutoff is not None:
        predictor.settings = predictor.settings.with_cutoff(cutoff)
    pictures, truth = source.open(predictor.classes), source.truth(predictor.classes)
    count = len(judged_indices(predictor, pictures, truth))
    run = partial(evaluate, predictor, pictures, truth, quality=True)
    ways = [
        Contender("without CRF", partial(run, crf=False), pictures=count),
        Contender("with CRF", partial(run, crf=True), pictures=count),
    ]
    scales = ", ".join(f"{scale:g}" for scale in predictor.settings.scales)
    title = f"Evaluation, {predictor.description['backbone']}, {count:,} pictures from files to figures"
    note = f"Scales {scales}{' with flips' if predictor.settings.flip else ''}; predicted and true tags, in one pass."
    return lambda place: Findings((compare(title, ways, device=place, note=note, long=True),))
