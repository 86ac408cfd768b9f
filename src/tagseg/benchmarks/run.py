"""`tagseg bench`: the benchmarks by name."""

from collections.abc import Callable, Sequence

import torch

from tagseg._checks import unknown_name
from tagseg.benchmarks.crf import bench_crf
from tagseg.benchmarks.pamr import bench_pamr
from tagseg.benchmarks.predict import bench_predict
from tagseg.benchmarks.report import Report, measure
from tagseg.benchmarks.timing import Findings
from tagseg.benchmarks.train import bench_train

BENCHMARKS: dict[str, Callable[[torch.device], Findings]] = {
    "pamr": bench_pamr,
    "crf": bench_crf,
    "train": bench_train,
    "predict": bench_predict,
}


def bench(
    what: Sequence[str] = (), *, device: str = "auto", on_start: Callable[[str], None] | None = None
) -> list[Report]:
    """Measure the fast paths beside what they replace, in one run on one machine.

    Args:
        what: any of `pamr`, `crf`, `train`, `predict`; all of them by default.
        device: `auto` takes the first GPU if there is one.
        on_start: called with the name of each benchmark before it starts.

    Returns:
        What was found, in the order of the names.
    """
    for name in what:
        if name not in BENCHMARKS:
            raise unknown_name("benchmark", name, tuple(BENCHMARKS))
    place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} was asked for, but torch sees no GPU here; use auto or cpu")
    reports = []
    for name in what or BENCHMARKS:
        if on_start is not None:
            on_start(name)
        reports.append(measure(name, BENCHMARKS[name], place))
    return reports
