import threading
from collections.abc import Iterator

import pytest

from tagseg.predict import ahead
from tagseg.predict.ahead import map_ahead


def test_results_keep_the_order_and_come_from_other_threads() -> None:
    def slow_at_first(number: int) -> tuple[int, int]:
        threading.Event().wait(0.01 if number == 0 else 0)
        return number, threading.get_ident()

    found = list(map_ahead(slow_at_first, range(50)))
    assert [number for number, _ in found] == list(range(50))
    assert threading.get_ident() not in {thread for _, thread in found}


def test_an_error_comes_in_its_turn() -> None:
    results = map_ahead(lambda number: 6 // number, [3, 2, 0, 1])
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_only_a_few_items_are_taken_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    next(map_ahead(lambda number: number, items()))
    assert len(taken) == 2 * ahead.THREADS + 1
    taken.clear()
    monkeypatch.setattr(ahead, "_MOST_BYTES", 0)  # large results: none may wait beside those in the making
    monkeypatch.setattr(ahead, "THREADS", 100)
    results = map_ahead(lambda number: number, items(), size=lambda _: 1)
    for number in range(100):
        assert next(results) == number
    assert len(taken) <= 200
