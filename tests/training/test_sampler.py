from collections import Counter

import pytest

from tagseg.training.sampler import ResumableBatchSampler


def steps(sampler: ResumableBatchSampler) -> list[set[tuple[int, int]]]:
    """Images of each optimizer step."""
    micro_batches = list(sampler)
    assert len(micro_batches) == len(sampler)
    size = sampler.accumulate
    return [set().union(*micro_batches[i : i + size]) for i in range(0, len(micro_batches), size)]


def test_every_epoch_has_every_image_once_in_a_new_order() -> None:
    sampler = ResumableBatchSampler(20, 5, epochs=2)
    items = [item for batch in sampler for item in batch]
    assert Counter(items) == Counter((epoch, i) for epoch in range(2) for i in range(20))
    assert [i for epoch, i in items if epoch == 0] != [i for epoch, i in items if epoch == 1]


def test_resuming_gives_the_same_batches() -> None:
    full, resumed = ResumableBatchSampler(23, 4, epochs=3, seed=7), ResumableBatchSampler(23, 4, epochs=3, seed=7)
    resumed.start = 8
    assert list(full)[8:] == list(resumed)


@pytest.mark.parametrize(("processes", "accumulate"), [(2, 1), (1, 4), (2, 2)])
def test_batch_of_a_step_does_not_depend_on_processes_and_accumulation(processes: int, accumulate: int) -> None:
    expected = steps(ResumableBatchSampler(30, 8, epochs=2))
    steps_by_process = [
        steps(ResumableBatchSampler(30, 8, epochs=2, accumulate=accumulate, processes=processes, process=process))
        for process in range(processes)
    ]
    assert [set().union(*step) for step in zip(*steps_by_process, strict=True)] == expected


def test_fewer_images_than_a_batch_are_repeated() -> None:
    (batch,) = list(ResumableBatchSampler(3, 8))
    assert len(batch) == 8
    assert {position for _, position in batch} == {0, 1, 2}


def test_batch_size_must_be_divisible_by_the_processes() -> None:
    with pytest.raises(ValueError, match="a batch of 16 images cannot be shared by 3 processes.*multiple of 3"):
        ResumableBatchSampler(100, 16, processes=3)
