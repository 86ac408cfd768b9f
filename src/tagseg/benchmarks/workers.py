"""Prediction in parts by one process, and by the workers of a Ray cluster on this machine."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image

from tagseg._ray import check_ray
from tagseg.api import predict_files
from tagseg.benchmarks.synthetic_images import photo_array, voc_sizes
from tagseg.benchmarks.timing import Measurements, Row, Table
from tagseg.predict.predictor import Predictor, load

_COUNT, _DISTINCT = 160, 16  # images, and different ones among them
_SIZE = 256  # working size: what the workers add costs more beside images that take little time
_WORKERS = (1, 2, 4)
_ADDRESS = "local"


def bench_workers(device: torch.device) -> Measurements:
    """Measure the default model on files of VOC's sizes, from JPEGs to Parquet files."""
    check_ray(_ADDRESS)
    threads = torch.get_num_threads()
    with TemporaryDirectory() as folder:
        images = _write_images(Path(folder) / "images")
        predictor = load(device=str(device))
        torch.set_num_threads(1)  # as each worker has on a core
        try:
            rows = [_measure("one process", predictor, images, Path(folder) / "plain", workers=None)]
        finally:
            torch.set_num_threads(threads)
        for count in _WORKERS:
            name = f"Ray, {count} worker{'' if count == 1 else 's'}"
            rows.append(_measure(name, predictor, images, Path(folder) / str(count), workers=count))
    note = (
        f"{_COUNT} JPEGs, default model at {_SIZE} pixels, one thread each. Without the start and the first part of "
        "each worker; the speedup is per image. More workers than cores share the cores."
    )
    return Measurements((Table("tagseg predict --format parquet --ray local", tuple(rows), note),))


def _write_images(folder: Path) -> Path:
    folder.mkdir()
    for number, size in enumerate(voc_sizes(_DISTINCT)):
        image = Image.fromarray(photo_array(*size, seed=number))
        for copy in range(number, _COUNT, _DISTINCT):
            image.save(folder / f"{copy:04}.jpg", quality=90)
    return folder


def _measure(name: str, predictor: Predictor, images: Path, out: Path, *, workers: int | None) -> Row:
    """Time the parts after the first one of each worker, by the times of their files."""
    ray = None if workers is None else _ADDRESS
    job = predict_files(images, out, model=predictor, size=_SIZE, format="parquet", ray=ray, workers=workers)
    times = sorted(path.stat().st_mtime for path in out.glob("*.parquet"))
    first = workers or 1
    return Row(name, times[-1] - times[first - 1], None, (len(times) - first) * int(job["part_size"]))
