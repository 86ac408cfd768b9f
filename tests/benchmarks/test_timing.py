import pytest
import torch

from tagseg.benchmarks.timing import Row, Table, Variant, compare, fitted_slope, growth

CPU = torch.device("cpu")


def test_memory_includes_bytes_held_between_calls() -> None:
    table = compare(
        "sums",
        [
            Variant("by rows", lambda: torch.ones(1000).sum()),
            Variant("with a weight", lambda: torch.ones(1000) * 2, held_bytes=500),
            Variant("without torch", lambda: sum(range(10))),
        ],
        device=CPU,
        rounds=1,
    )
    assert [row.extra_bytes for row in table.rows] == [4004, 8500, None]
    assert all(row.seconds > 0 for row in table.rows)


def test_long_variants_warm_up_once_and_keep_every_round() -> None:
    calls: list[str] = []
    variants = [Variant(name, lambda name=name: calls.append(name)) for name in ("one", "other")]  # type: ignore[misc]
    table = compare("long", variants, device=CPU, rounds=3, long=True)
    assert calls == ["one", "other"] * 4
    for row in table.rows:
        assert len(row.rounds) == 3
        assert row.seconds == sorted(row.rounds)[1]


def test_speedup_is_per_image() -> None:
    table = Table("t", (Row("one", 2.0, None, images=1), Row("eight", 4.0, None, images=8)))
    assert [table.speedup(row) for row in table.rows] == [1, 4]


def test_growth_times_every_size() -> None:
    calls: list[int] = []
    curve = growth("sort", "numbers", [10, 100], lambda size: lambda: calls.append(size), device=CPU)
    assert set(calls) == {10, 100}
    assert [size for size, _ in curve.points] == [10, 100]


def test_fitted_slope_is_the_exponent_of_the_power_law() -> None:
    assert fitted_slope([(size, 3e-6 * size**1.5) for size in (10, 100, 1000)]) == pytest.approx(1.5)
