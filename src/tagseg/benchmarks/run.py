"""`tagseg bench`: the benchmarks by name."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from tagseg._device import pick_device
from tagseg.benchmarks.crf import bench_crf
from tagseg.benchmarks.evaluate import open_evaluate
from tagseg.benchmarks.pamr import bench_pamr
from tagseg.benchmarks.predict import bench_predict
from tagseg.benchmarks.report import Report, measure
from tagseg.benchmarks.timing import Findings
from tagseg.benchmarks.train import bench_train
from tagseg.data import DataSource
from tagseg.errors import unknown_name

BENCHMARKS: dict[str, Callable[[torch.device], Findings]] = {
    "pamr": bench_pamr,
    "crf": bench_crf,
    "train": bench_train,
    "predict": bench_predict,
}
_EVALUATE = "evaluate"  # needs a model and images, so it is not among those that are run by default


def bench(
    what: Sequence[str] = (),
    *,
    model: str | Path | None = None,
    data: str | Path | DataSource | None = None,
    threshold: float | None = None,
    device: str = "auto",
    on_start: Callable[[str], None] | None = None,
) -> list[Report]:
    """Measure the fast paths beside what they replace, in one run on one machine.

    Args:
        what: any of `pamr`, `crf`, `train`, `predict`; all of them by default. Or `evaluate`: a model of your own over
            images of your own, without and with CRF.
        model: for `evaluate`, a run's folder, a model's file or `default`.
        data: for `evaluate`, images with masks.
        threshold: for `evaluate`, the least score with which a class is kept; the paper's is .1.
        device: `auto` takes the first GPU if there is one.
        on_start: called with the name of each benchmark before it starts.

    Returns:
        What was found, in the order of the names.
    """
    known = (*BENCHMARKS, _EVALUATE)
    for name in what:
        if name not in known:
            raise unknown_name("benchmark", name, known)
    if _EVALUATE not in what and (model is not None or data is not None or threshold is not None):
        raise ValueError("a model, data and a threshold are for the benchmark evaluate; name it, or leave them out")
    place = pick_device(device)
    jobs = dict(BENCHMARKS)
    if _EVALUATE in what:
        if model is None or data is None:
            raise ValueError("the benchmark evaluate needs a model and images with masks; add --model and --data")
        jobs[_EVALUATE] = open_evaluate(model, data, threshold=threshold, device=place)
    reports = []
    for name in what or BENCHMARKS:
        if on_start is not None:
            on_start(name)
        reports.append(measure(name, jobs[name], place))
    return reports
