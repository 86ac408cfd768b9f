"""`tagseg bench`: the benchmarks by name."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from tagseg._device import pick_device
from tagseg.benchmarks.crf import bench_crf
from tagseg.benchmarks.pamr import bench_pamr
from tagseg.benchmarks.predict import EvaluationBenchmark, bench_predict
from tagseg.benchmarks.report import Report, measure
from tagseg.benchmarks.sizes import SizesBenchmark
from tagseg.benchmarks.timing import Measurements
from tagseg.benchmarks.train import bench_train
from tagseg.benchmarks.workers import bench_workers
from tagseg.data import DataSource
from tagseg.errors import ConfigError, unknown_name
from tagseg.predict.settings import WorkingSize

BENCHMARKS: dict[str, Callable[[torch.device], Measurements]] = {
    "pamr": bench_pamr,
    "crf": bench_crf,
    "train": bench_train,
    "predict": bench_predict,
}
# Not run by default: they need a model and images, or Ray.
_EVALUATE, _SIZES, _WORKERS = "evaluate", "sizes", "workers"


def bench(
    what: Sequence[str] = (),
    *,
    model: str | Path | None = None,
    data: str | Path | DataSource | None = None,
    threshold: float | None = None,
    size: WorkingSize | None = None,
    device: str = "auto",
    on_start: Callable[[str], None] | None = None,
) -> list[Report]:
    """Measure time and memory of tagseg's parts on this machine, beside what they replace.

    Args:
        what: Any of `pamr`, `crf`, `train`, `predict`; all of them by default. Or, for a model of your own on images of
            your own, `evaluate`: the time without and with CRF, and `sizes`: the mIoU of resized images. Or `workers`,
            which needs Ray: prediction by 1, 2 and 4 workers.
        model: For `evaluate` and `sizes`, a run folder, a model file or `default`.
        data: For `evaluate` and `sizes`, images with masks.
        threshold: For `evaluate` and `sizes`, the score from which a class counts as present; the paper's is 0.1.
        size: For `sizes`, the working size in place of the model's.
        device: Device to measure on; `auto` is the first GPU, or the CPU without one.
        on_start: Function called with the name of each benchmark before it starts.

    Returns:
        A report for each benchmark, in the order of the names.
    """
    known = (*BENCHMARKS, _EVALUATE, _SIZES, _WORKERS)
    for name in what:
        if name not in known:
            raise unknown_name("benchmark", name, known)
    of_models = [name for name in (_EVALUATE, _SIZES) if name in what]
    if not of_models and (model is not None or data is not None or threshold is not None):
        raise ConfigError(
            "a model, data and a threshold are for the benchmarks evaluate and sizes", "name one, or leave them out"
        )
    if _SIZES not in what and size is not None:
        raise ConfigError("a size is for the benchmark sizes", "name it, or leave the size out")
    torch_device = pick_device(device)
    jobs = {**BENCHMARKS, _WORKERS: bench_workers}
    for name in of_models:
        if model is None or data is None:
            raise ConfigError(f"the benchmark {name} needs a model and images with masks", "add {model} and {data}")
        if name == _EVALUATE:
            jobs[_EVALUATE] = EvaluationBenchmark(model, data, threshold=threshold, device=torch_device)
        else:
            jobs[_SIZES] = SizesBenchmark(model, data, threshold=threshold, size=size, device=torch_device)
    reports = []
    for name in what or BENCHMARKS:
        if on_start is not None:
            on_start(name)
        reports.append(measure(name, jobs[name], torch_device))
    return reports
