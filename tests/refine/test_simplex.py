import torch

from tagseg.refine._simplex import barycentric, elevate, enclosing_simplex


def test_barycentric_weights_are_convex() -> None:
    _, rank, offset = enclosing_simplex(elevate(torch.randn(5, 200) * 4))
    weights = barycentric(rank, offset)
    assert torch.equal(rank.sort(0).values, torch.arange(6)[:, None].expand(6, 200))
    torch.testing.assert_close(weights.sum(0), torch.ones(200))
    assert weights.min() > -1e-5
