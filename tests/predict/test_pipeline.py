import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from tagseg.predict import pipeline
from tagseg.predict.engine import ImageResult
from tagseg.predict.pipeline import Sample, read_ahead, run_pipeline
from tagseg.predict.settings import InferenceSettings

SETTINGS = InferenceSettings(size="native")


class RecordingBatch:
    def __init__(self, engine: "RecordingEngine", name: int, size: int) -> None:
        self.engine, self.name, self.size = engine, name, size

    def results(self) -> list[ImageResult]:
        self.engine.events.append(f"finish {self.name}")
        return [ImageResult([float(self.name + i)], {}, SETTINGS) for i in range(self.size)]


class RecordingEngine:
    """A fake engine that records which batches are submitted and finished, and in which order."""

    batch_size = 8

    def __init__(self, num_in_flight: int = 0, max_pixels: int = 10**6) -> None:
        self.num_in_flight, self.max_pixels = num_in_flight, max_pixels
        self.events: list[str] = []
        self.shapes: list[set[tuple[int, ...]]] = []
        self.sizes: list[int] = []

    def max_batch(self, height: int, width: int) -> int:
        return max(1, self.max_pixels // (height * width))

    def runs_alone(self, height: int, width: int) -> bool:
        return self.max_batch(height, width) == 1

    def submit(self, images: Sequence[Any], *_: Any, **__: Any) -> RecordingBatch:
        name = int(images[0][0, 0, 0])
        self.events.append(f"submit {name}")
        self.shapes.append({image.shape for image in images})
        self.sizes.append(len(images))
        return RecordingBatch(self, name, len(images))


def samples(widths: Sequence[int]) -> Iterator[Sample[int]]:
    for number, width in enumerate(widths):
        image = np.zeros((1, width, 3), np.uint8)
        image[0, 0, 0] = number % 256
        yield Sample(number, image, rules={})


def run(engine: RecordingEngine, stream: Iterator[Sample[int]], batch_size: int) -> Iterator[int]:
    for sample, _ in run_pipeline(engine, stream, SETTINGS, batch_size=batch_size):  # type: ignore[arg-type]
        yield sample.key


@given(widths=st.lists(st.integers(1, 5), max_size=60), batch_size=st.integers(1, 4))
@hypothesis_settings(deadline=None)
def test_batches_have_one_shape_and_results_keep_the_order(widths: list[int], batch_size: int) -> None:
    engine = RecordingEngine()
    assert list(run(engine, samples(widths), batch_size)) == list(range(len(widths)))
    assert all(len(shapes) == 1 for shapes in engine.shapes)
    assert all(1 <= size <= batch_size for size in engine.sizes)


def test_mixed_shapes_fill_whole_batches() -> None:
    engine = RecordingEngine()
    widths = [1, 2, 3, 2] * 30 + [9] + [1, 2, 3, 2] * 30
    assert list(run(engine, samples(widths), 4)) == list(range(241))
    assert sorted(engine.sizes) == [1] + [4] * 60


@pytest.mark.parametrize(("max_pixels", "num_ahead"), [(2**27, 128 * 3), (20, 21)])
def test_samples_read_ahead_are_bounded(monkeypatch: pytest.MonkeyPatch, max_pixels: int, num_ahead: int) -> None:
    monkeypatch.setattr(pipeline, "_MAX_PIXELS_AHEAD", max_pixels)
    consumed: list[int] = []

    def stream() -> Iterator[Sample[int]]:
        for sample in samples([1 if number == 0 else 2 + number % 2 for number in range(1000)]):
            consumed.append(sample.key)
            yield sample

    results = run(RecordingEngine(), stream(), 3)
    assert next(results) == 0  # no other image has its shape, so it waits until the limit
    assert len(consumed) <= num_ahead


def test_next_batches_are_submitted_before_the_first_is_finished() -> None:
    engine = RecordingEngine(num_in_flight=2)
    list(run(engine, samples([1, 1, 1, 1]), 1))
    submitted = ["submit 0", "submit 1", "submit 2"]
    assert engine.events == [*submitted, "finish 0", "submit 3", "finish 1", "finish 2", "finish 3"]


def test_large_images_are_in_flight_alone() -> None:
    engine = RecordingEngine(num_in_flight=2, max_pixels=8)
    list(run(engine, samples([1, 5, 1]), 1))
    assert engine.events == ["submit 0", "finish 0", "submit 1", "finish 1", "submit 2", "finish 2"]


def test_results_before_a_reading_error_are_yielded_first() -> None:
    def stream() -> Iterator[Sample[int]]:
        yield from samples([1, 2, 1])
        raise ValueError("broken")

    results = run(RecordingEngine(), stream(), 8)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="broken"):
        next(results)


def test_read_ahead_keeps_the_order_and_runs_in_other_threads() -> None:
    def slow_at_first(number: int) -> tuple[int, int]:
        threading.Event().wait(0.01 if number == 0 else 0)
        return number, threading.get_ident()

    outputs = list(read_ahead(slow_at_first, range(50)))
    assert [number for number, _ in outputs] == list(range(50))
    assert threading.get_ident() not in {thread for _, thread in outputs}


def test_read_ahead_raises_errors_in_order() -> None:
    outputs = read_ahead(lambda number: 6 // number, [3, 2, 0, 1])
    assert [next(outputs), next(outputs)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(outputs)


def test_read_ahead_is_bounded_in_items_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    consumed: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            consumed.append(number)
            yield number

    next(read_ahead(lambda number: number, items()))
    assert len(consumed) == 2 * pipeline._NUM_THREADS + 1
    consumed.clear()
    monkeypatch.setattr(pipeline, "_MAX_WAITING_BYTES", 0)
    monkeypatch.setattr(pipeline, "_NUM_THREADS", 100)
    outputs = read_ahead(lambda number: number, items(), size=lambda _: 1)
    for number in range(100):
        assert next(outputs) == number
    assert len(consumed) <= 200
