"""Refinement of masks by the tokens of a vision transformer: what looks alike gets the same mask."""

import torch
import torch.nn.functional as F
from torch import Tensor


@torch.no_grad()
def random_walk(masks: Tensor, tokens: Tensor, *, temperature: float = 0.1, steps: int = 1) -> Tensor:
    """Let masks walk between similar tokens of their image: each becomes a weighted mean over all tokens.

    The weights of a token are the softmax of its cosine similarities, so the sum of the masks at a token is preserved.

    Args:
        masks: Masks, [B, K, H, W]; averaged over the pixels of each token.
        tokens: Tokens, [B, D, h, w].
        temperature: Divides the cosine similarities; lower values move masks between more similar tokens only.
        steps: Number of steps.

    Returns:
        The masks at the size of the tokens, [B, K, h, w].
    """
    height, width = tokens.shape[-2:]
    directions = F.normalize(tokens.flatten(2).float(), dim=1)
    weights = (directions.transpose(1, 2) @ directions).div_(temperature).softmax(2)
    walked = F.adaptive_avg_pool2d(masks, (height, width)).flatten(2).float()
    for _ in range(steps):
        walked = walked @ weights.transpose(1, 2)
    return walked.view(*walked.shape[:2], height, width)
