"""`tagseg bench`: the benchmarks by name."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from tagseg._device import pick_device
from tagseg.benchmarks.crf import bench_crf
from tagseg.benchmarks.pamr import bench_pamr
from tagseg.benchmarks.predict import EvaluationBenchmark, bench_predict
from tagseg.benchmarks.report import Report, measure
from tagseg.benchmarks.timing import Measurements
from tagseg.benchmarks.train import bench_train
from tagseg.data import DataSource
from tagseg.errors import ConfigError, unknown_name

BENCHMARKS: dict[str, Callable[[torch.device], Measurements]] = {
    "pamr": bench_pamr,
    "crf": bench_crf,
    "train": bench_train,
    "predict": bench_predict,
}
_EVALUATE = "evaluate"  # not run by default, because it needs a model and images


def bench(
    what: Sequence[str] = (),
    *,
    model: str | Path | None = None,
    data: str | Path | DataSource | None = None,
    threshold: float | None = None,
    device: str = "auto",
    on_start: Callable[[str], None] | None = None,
) -> list[Report]:
    """Measure time and memory of tagseg's parts on this machine, beside what they replace.

    Args:
        what: Any of `pamr`, `crf`, `train`, `predict`; all of them by default. Or `evaluate`: a model of your own on
            images of your own, without and with CRF.
        model: For `evaluate`, a run folder, a model file or `default`.
        data: For `evaluate`, images with masks.
        threshold: For `evaluate`, the score from which a class counts as present; the paper's is 0.1.
        device: Device to measure on; `auto` is the first GPU, or the CPU without one.
        on_start: Function called with the name of each benchmark before it starts.

    Returns:
        A report for each benchmark, in the order of the names.
    """
    known = (*BENCHMARKS, _EVALUATE)
    for name in what:
        if name not in known:
            raise unknown_name("benchmark", name, known)
    if _EVALUATE not in what and (model is not None or data is not None or threshold is not None):
        raise ConfigError("a model, data and a threshold are for the benchmark evaluate", "name it, or leave them out")
    torch_device = pick_device(device)
    jobs = dict(BENCHMARKS)
    if _EVALUATE in what:
        if model is None or data is None:
            raise ConfigError("the benchmark evaluate needs a model and images with masks", "add {model} and {data}")
        jobs[_EVALUATE] = EvaluationBenchmark(model, data, threshold=threshold, device=torch_device)
    reports = []
    for name in what or BENCHMARKS:
        if on_start is not None:
            on_start(name)
        reports.append(measure(name, jobs[name], torch_device))
    return reports
