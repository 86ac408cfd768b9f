import torch

from tagseg.refine.random_walk import random_walk


def test_walk_keeps_the_sum_of_the_masks_of_a_token() -> None:
    masks = torch.rand(2, 4, 12, 20).softmax(1)
    walked = random_walk(masks, torch.randn(2, 8, 3, 5), temperature=0.3, steps=3)
    assert walked.shape == (2, 4, 3, 5)
    assert torch.allclose(walked.sum(1), torch.ones(2, 3, 5))


def test_alike_tokens_get_the_same_mask() -> None:
    """Two kinds of tokens, orthogonal to each other; at a low temperature each kind keeps its own mean."""
    kinds = torch.tensor([[0, 0, 1], [1, 0, 1]])
    tokens = torch.stack([kinds == 0, kinds == 1])[None].float()
    masks = torch.tensor([[0.9, 0.3, 0.0], [0.2, 0.6, 0.1]])[None, None]
    walked = random_walk(masks, tokens, temperature=0.01)[0, 0]
    assert torch.allclose(walked[kinds == 0], torch.tensor(0.6))
    assert torch.allclose(walked[kinds == 1], torch.tensor(0.1))


def test_length_of_tokens_does_not_matter() -> None:
    masks, tokens = torch.rand(1, 2, 4, 4), torch.randn(1, 8, 4, 4)
    expected = random_walk(masks, tokens)
    assert torch.allclose(random_walk(masks, tokens * torch.rand(1, 1, 4, 4).add(0.1)), expected, atol=1e-6)


def test_at_a_high_temperature_all_tokens_get_the_mean() -> None:
    masks = torch.rand(1, 2, 4, 4)
    walked = random_walk(masks, torch.randn(1, 8, 4, 4), temperature=1e4)
    assert torch.allclose(walked, masks.mean((2, 3), keepdim=True).expand_as(walked), atol=1e-3)
