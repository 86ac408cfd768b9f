import pytest
import torch

from tagseg.training.calibration import best_temperature


def test_temperature_recovers_the_scale_of_the_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(20000, 5, generator=generator)
    classes = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    assert best_temperature(4 * logits, classes) == pytest.approx(4, rel=0.05)
    assert best_temperature(logits[:0], classes[:0]) == 1
