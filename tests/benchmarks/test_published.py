import torch

import tagseg
from tagseg.benchmarks.published import published_pamr


def test_published_pamr_equals_pamr() -> None:
    image, masks = torch.rand(2, 3, 20, 26), torch.rand(2, 4, 20, 26)
    assert torch.allclose(published_pamr(image, masks), tagseg.pamr(image, masks), atol=1e-5)
