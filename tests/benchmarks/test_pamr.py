import pytest
import torch

import tagseg
from tagseg.benchmarks import pamr, timing
from tagseg.benchmarks.pamr import published_pamr
from tagseg.refine.pamr import refine_masks, refine_plain

CPU = torch.device("cpu")


def test_every_variant_refines_the_same_masks() -> None:
    image, masks = pamr._batch(2, 5, 24, CPU)
    present = torch.tensor([[1, 0, 1, 0, 0], [1, 1, 0, 0, 0]])
    expected = published_pamr(image, masks)
    assert torch.allclose(refine_plain(image, masks, None, **pamr._SETTINGS), expected, atol=1e-5)
    assert torch.allclose(refine_masks(image, masks, **pamr._SETTINGS), expected, atol=1e-5)
    refined = refine_masks(image, masks, present=present, **pamr._SETTINGS)
    assert torch.allclose(refined[present.bool()], expected[present.bool()], atol=1e-5)


def test_table_starts_with_the_published_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SECONDS_PER_ROUND", 0)
    table = pamr._compare(9, CPU)
    assert table.title == "PAMR, 16x21x9x9, 10 iterations"
    assert [row.name for row in table.rows] == [
        "published form: all neighbors in memory",
        "plain torch, one neighbor at a time",
        "tagseg",
        "tagseg, present classes only",
    ]
    most_memory = max(table.rows, key=lambda row: row.extra_bytes or 0)
    assert most_memory.name.startswith("published form")


def test_published_pamr_equals_pamr() -> None:
    image, masks = torch.rand(2, 3, 20, 26), torch.rand(2, 4, 20, 26)
    assert torch.allclose(published_pamr(image, masks), tagseg.pamr(image, masks), atol=1e-5)
