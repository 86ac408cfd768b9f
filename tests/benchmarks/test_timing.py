import torch

from tagseg.benchmarks.timing import Contender, Row, Table, compare, growth

CPU = torch.device("cpu")


def test_compares_memory_with_what_is_held_between_calls() -> None:
    table = compare(
        "sums",
        [
            Contender("by rows", lambda: torch.ones(1000).sum()),
            Contender("with a weight", lambda: torch.ones(1000) * 2, held=500),
            Contender("without torch", lambda: sum(range(10))),
        ],
        device=CPU,
        rounds=1,
    )
    assert [row.extra_bytes for row in table.rows] == [4004, 8500, None]
    assert all(row.seconds > 0 for row in table.rows)


def test_ratios_are_by_picture() -> None:
    table = Table("t", (Row("one", 2.0, None, pictures=1), Row("eight", 4.0, None, pictures=8)))
    assert [table.times_faster(row) for row in table.rows] == [1, 4]


def test_growth_counts_each_size_in_its_turn() -> None:
    calls: list[int] = []
    found = growth("sort", "numbers", [10, 100], lambda size: lambda: calls.append(size), device=CPU, rounds=1)
    assert set(calls) == {10, 100}
    assert [size for size, _ in found.points] == [10, 100]


def test_slope_is_the_exponent_of_the_power_law() -> None:
    # A matrix product of eight times as many operations: far from linear on every machine.
    def product(side: int) -> object:
        matrix = torch.rand(side, side)
        return lambda: matrix @ matrix

    found = growth("product", "side", [64, 512], product, device=CPU, rounds=3)  # type: ignore[arg-type]
    assert 1.5 < found.slope < 4
