from collections import Counter

import pytest

from tagseg.training.augment import seed_for
from tagseg.training.sampling import Schedule


def steps(schedule: Schedule) -> list[set[tuple[int, int]]]:
    """The images of each optimiser step."""
    parts = list(schedule)
    assert len(parts) == len(schedule)
    size = schedule.accumulate
    return [set().union(*parts[i : i + size]) for i in range(0, len(parts), size)]


def test_every_epoch_has_every_image_once_in_another_order() -> None:
    schedule = Schedule(20, 5, epochs=2)
    seen = [item for part in schedule for item in part]
    assert Counter(seen) == Counter((epoch, i) for epoch in range(2) for i in range(20))
    assert [i for epoch, i in seen if epoch == 0] != [i for epoch, i in seen if epoch == 1]


def test_going_on_gives_the_same_batches() -> None:
    whole, rest = Schedule(23, 4, epochs=3, seed=7), Schedule(23, 4, epochs=3, seed=7)
    rest.start = 8
    assert list(whole)[8:] == list(rest)


@pytest.mark.parametrize(("processes", "accumulate"), [(2, 1), (1, 4), (2, 2)])
def test_the_global_batch_does_not_depend_on_how_it_is_shared(processes: int, accumulate: int) -> None:
    whole = steps(Schedule(30, 8, epochs=2))
    shares = [
        steps(Schedule(30, 8, epochs=2, accumulate=accumulate, processes=processes, process=process))
        for process in range(processes)
    ]
    assert [set().union(*share) for share in zip(*shares, strict=True)] == whole


def test_fewer_images_than_a_batch_are_repeated() -> None:
    (batch,) = list(Schedule(3, 8))
    assert len(batch) == 8
    assert {position for _, position in batch} == {0, 1, 2}


def test_a_batch_that_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="a batch of 16 images cannot be shared by 3 processes.*multiple of 3"):
        Schedule(100, 16, processes=3)


def test_seeds_differ() -> None:
    assert len({seed_for(a, b, c) for a in range(5) for b in range(20) for c in range(50)}) == 5000
    assert all(0 <= seed_for(0, a) < 2**63 for a in range(1000))
