from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tagseg.data.images import Pixels
from tagseg.predict import batches
from tagseg.predict.batches import in_batches


@dataclass(frozen=True)
class Numbered:
    number: int
    pixels: Pixels


def numbered(widths: list[int]) -> list[Numbered]:
    return [Numbered(number, np.zeros((1, width, 3), np.uint8)) for number, width in enumerate(widths)]


@given(widths=st.lists(st.integers(1, 5), max_size=60), batch_size=st.integers(1, 4))
def test_every_batch_has_one_shape_and_the_order_stays(widths: list[int], batch_size: int) -> None:
    def begin(batch: list[Numbered]) -> Callable[[], list[int]]:
        assert len({item.pixels.shape for item in batch}) == 1
        assert 1 <= len(batch) <= batch_size
        return lambda: [item.number for item in batch]

    assert list(in_batches(numbered(widths), begin, batch_size=batch_size)) == list(range(len(widths)))


def test_mixed_shapes_fill_whole_batches() -> None:
    sizes: list[int] = []

    def begin(batch: list[Numbered]) -> Callable[[], list[int]]:
        sizes.append(len(batch))
        return lambda: [item.number for item in batch]

    widths = [1, 2, 3, 2] * 30 + [9] + [1, 2, 3, 2] * 30
    assert list(in_batches(numbered(widths), begin, batch_size=4)) == list(range(241))
    assert sorted(sizes) == [1] + [4] * 60


@pytest.mark.parametrize(("most_pixels", "held"), [(2**27, 128 * 3), (20, 21)])
def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch, most_pixels: int, held: int) -> None:
    monkeypatch.setattr(batches, "_MOST_PIXELS", most_pixels)
    taken: list[int] = []

    def items() -> Iterator[Numbered]:
        for item in numbered([1 if number == 0 else 2 + number % 2 for number in range(1000)]):
            taken.append(item.number)
            yield item

    stream = in_batches(items(), lambda batch: lambda: [item.number for item in batch], batch_size=3)
    assert next(stream) == 0  # it has no fellow, so it waits for the last moment
    assert len(taken) <= held


def test_batches_are_begun_before_those_before_them_are_finished() -> None:
    events: list[str] = []

    def begin(batch: list[Numbered]) -> Callable[[], list[int]]:
        name = str(batch[0].number)
        events.append(f"begin {name}")

        def finish() -> list[int]:
            events.append(f"finish {name}")
            return [item.number for item in batch]

        return finish

    list(in_batches(numbered([1, 1, 1, 1]), begin, batch_size=1, in_flight=2))
    begun = ["begin 0", "begin 1", "begin 2"]
    assert events == [*begun, "finish 0", "begin 3", "finish 1", "finish 2", "finish 3"]


def test_an_error_comes_after_what_came_before_it() -> None:
    def items() -> Iterator[Numbered]:
        yield from numbered([1, 2, 1])
        raise ValueError("broken")

    results = in_batches(items(), lambda batch: lambda: [item.number for item in batch], batch_size=8)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="broken"):
        next(results)
