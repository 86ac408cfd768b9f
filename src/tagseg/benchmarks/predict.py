"""Prediction with each pass of the optimizer, from plain torch up; and a whole evaluation, without and with CRF."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from tagseg._device import multiplies_bfloat16
from tagseg.benchmarks.synthetic_images import COMMON_SIZES, photo_array, voc_sizes
from tagseg.benchmarks.timing import Measurements, Row, Table, Variant, compare, growth, time_call
from tagseg.data import DataSource
from tagseg.data.images import Pixels
from tagseg.evaluation.evaluate import evaluate, images_with_masks
from tagseg.models.base import Network
from tagseg.models.build import build_model
from tagseg.predict.predictor import Predictor, load
from tagseg.predict.settings import InferenceSettings

_BACKBONE, _CLASSES = "resnet50", 20
_HEIGHT, _WIDTH = 375, 500  # VOC's most common size
_FIXED_SIZE = f"{_BACKBONE}, {_HEIGHT}x{_WIDTH}"
# Random weights could keep any number of classes; usual images have one or two.
_SETTINGS = InferenceSettings(size="native", thresholds=tuple(0.0 if k in (3, 7) else 1.0 for k in range(_CLASSES)))
_PASSES = {"plain torch": (), "+ folded batch norm": ("fold",), "+ fused convolutions": ("fold", "fuse")}


def bench_predict(device: torch.device) -> Measurements:
    """Measure ResNet-50 on images in memory: single-scale and TTA, at one size and over VOC's sizes."""
    torch.manual_seed(0)
    network = build_model(_BACKBONE, _CLASSES)
    on_gpu = device.type == "cuda"
    predictors = {
        name: _predictor(network, device, passes) for name, passes in _PASSES.items() if on_gpu or "fuse" not in passes
    }
    fastest = list(predictors.values())[-1]
    pixels = [1000**2, 2000**2, 4000**2] if on_gpu else [100**2, 200**2, 400**2]
    return Measurements(
        (
            _compare_passes(predictors, device, tta=False),
            _compare_passes(predictors, device, tta=True),
            _compare_crf(fastest, device),
            *([] if on_gpu or find_spec("onnxruntime") is None else [compare_runtimes(network, _SETTINGS)]),
            compare_first_passes(
                predictors, device, count=200 if on_gpu else 20, rounds=3 if on_gpu else 1, sizes=voc_sizes
            ),
        ),
        (
            growth(
                "prediction, single-scale",
                "pixels",
                pixels,
                lambda count: partial(_predict, fastest, [photo_array(round(count**0.5), round(count**0.5))]),
                device=device,
            ),
        ),
    )


def _predictor(network: Network, device: torch.device, passes: tuple[str, ...]) -> Predictor:
    """Build a predictor with some of the passes of `tagseg.predict.optimize`; with none it runs the plain network."""
    return Predictor(deepcopy(network), _SETTINGS, device=str(device), optimize=passes)


def _predict(predictor: Predictor, images: Sequence[Pixels], *, tta: bool = False, crf: bool = False) -> None:
    """Predict masks, from pixels in memory to masks in memory, and discard them."""
    deque(predictor.predict_many(images, tta=tta, crf=crf, probabilities=False), maxlen=0)


def _fixed_size_images(device: torch.device) -> list[Pixels]:
    """Generate one image for a CPU, and four batches for a GPU, where batches overlap."""
    return [photo_array(_HEIGHT, _WIDTH, seed=seed) for seed in range(32 if device.type == "cuda" else 1)]


def _compare_passes(predictors: dict[str, Predictor], device: torch.device, *, tta: bool) -> Table:
    images = _fixed_size_images(device)
    on_gpu = device.type == "cuda"
    precision = "bfloat16" if next(iter(predictors.values())).engine.bfloat16 else "float32"
    return compare(
        f"{_FIXED_SIZE}, {'TTA: 4 scales with flips' if tta else 'single-scale'}",
        [
            Variant(name, partial(_predict, predictor, images, tta=tta), images=len(images))
            for name, predictor in predictors.items()
        ],
        device=device,
        rounds=5 if on_gpu or not tta else 3,
        note=f"From pixels to masks in {precision}, channels last, "
        f"{'batches of 8' if on_gpu else 'one image at a time'}. Each row adds a pass to the row above.",
        long=tta and not on_gpu,
    )


def _compare_crf(predictor: Predictor, device: torch.device) -> Table:
    images = _fixed_size_images(device)
    on_gpu = device.type == "cuda"
    return compare(
        f"{_FIXED_SIZE}, TTA, dense CRF",
        [
            Variant(name, partial(_predict, predictor, images, tta=True, crf=crf), images=len(images))
            for name, crf in (("without CRF", False), ("with CRF", True))
        ],
        device=device,
        rounds=5 if on_gpu else 3,
        note=f"All passes. The CRF refines 2 of {_CLASSES} classes and the background.",
        long=not on_gpu,
    )


def compare_runtimes(network: Network, settings: InferenceSettings) -> Table:
    """Time torch and ONNX Runtime on the CPU, which run the same network with the same number of threads.

    Args:
        network: Network to export.
        settings: Settings of inference.
    """
    from tagseg.export.onnx import write_export  # imports torch's exporter

    device = torch.device("cpu")
    images = _fixed_size_images(device)

    def torch_predictor(precision: str) -> Predictor:
        return Predictor(deepcopy(network), settings, device="cpu", precision=precision)

    predictors = {"torch, float32": torch_predictor("float32")}
    with TemporaryDirectory() as folder:
        exported = load(write_export(predictors["torch, float32"], Path(folder) / "model.onnx"), device="cpu")
    if multiplies_bfloat16(device):
        predictors["torch, bfloat16"] = torch_predictor("bfloat16")
    predictors["ONNX Runtime, float32"] = exported
    return compare(
        f"{_FIXED_SIZE}, single-scale, torch and ONNX Runtime",
        [
            Variant(name, partial(_predict, predictor, images), images=len(images), is_torch=predictor is not exported)
            for name, predictor in predictors.items()
        ],
        device=device,
        note=f"From pixels to masks, one image at a time, on {torch.get_num_threads()} threads; all passes of torch.",
    )


def compare_first_passes(
    predictors: dict[str, Predictor],
    device: torch.device,
    *,
    count: int,
    rounds: int,
    sizes: Callable[..., list[tuple[int, int]]],
) -> Table:
    """Time the first pass of each predictor over images of many sizes, with TTA.

    Args:
        predictors: Predictors by the name of their last pass; the first is the baseline.
        device: Device of the predictors.
        count: Number of images.
        rounds: Number of rounds, each with sizes of its own.
        sizes: Function from the number of images and a `seed` to the images' sizes.
    """
    for predictor in predictors.values():  # compile kernels and reserve memory
        _predict(predictor, [photo_array(*size) for size in COMMON_SIZES], tta=True)
    seconds: dict[str, list[float]] = {name: [] for name in predictors}
    size_counts = []
    for seed in range(rounds):
        drawn = sizes(count, seed=seed)
        size_counts.append(len(set(drawn)))
        images = [photo_array(*size, seed=index % 8) for index, size in enumerate(drawn)]
        for name, predictor in predictors.items():
            # torch keeps cuDNN's plans per thread, so a new thread plans every size anew.
            job = partial(_run_in_new_thread, partial(_predict, predictor, images, tta=True))
            seconds[name].append(time_call(job, device))
    rows = (Row(name, median(times), None, count, tuple(times)) for name, times in seconds.items())
    note = f"{count} images in memory, {min(size_counts)} or more sizes, in batches of one size."
    if device.type == "cuda":
        note += (
            " Every round is the first pass over a new draw of sizes: cuDNN plans its convolutions for each new size."
        )
    return Table(f"{_BACKBONE}, VOC's image sizes, TTA", tuple(rows), note)


def _run_in_new_thread(job: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as executor:
        executor.submit(job).result()


class EvaluationBenchmark:
    """Benchmark of a whole evaluation, from files to metrics; wrong arguments raise before it runs.

    Args:
        model: A run folder, a model file or `default`.
        data: Images with masks.
        threshold: Score from which a class counts as present; by default the model's own.
        device: Device to measure on.
    """

    def __init__(
        self, model: str | Path, data: str | Path | DataSource, *, threshold: float | None, device: torch.device
    ) -> None:
        self._predictor, source = load(model, device=str(device)), DataSource.of(data)
        if threshold is not None:
            self._predictor.settings = self._predictor.settings.with_threshold(threshold)
        self._images = source.open(self._predictor.classes)
        self._masks = source.open_masks(self._predictor.classes)
        self._count = len(images_with_masks(self._predictor, self._images, self._masks))

    def __call__(self, device: torch.device) -> Measurements:
        """Time the evaluation without and with CRF, in turns."""
        run = partial(evaluate, self._predictor, self._images, self._masks, tta=True)
        variants = [
            Variant("without CRF", partial(run, crf=False), images=self._count),
            Variant("with CRF", partial(run, crf=True), images=self._count),
        ]
        title = f"Evaluation, {self._predictor.description['backbone']}, {self._count:,} images, from files to metrics"
        note = f"Scales {self._predictor.settings.describe_scales()}; both protocols in one pass."
        return Measurements((compare(title, variants, device=device, note=note, long=True),))
