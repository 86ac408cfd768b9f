"""Class scores from pixel scores: the paper's pooling (Eq. 3), those it is compared with, and the size penalty."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tagseg._checks import require_shape

Pooling = Callable[[Tensor, Tensor], Tensor]


def with_background(logits: Tensor, *, score: float = 1.0) -> Tensor:
    """Prepend the background's constant score (Sec. 3.2): [B, C, h, w] to [B, 1 + C, h, w]."""
    return torch.cat([torch.full_like(logits[:, :1], score), logits], dim=1)


def ngwp(logits: Tensor, masks: Tensor, *, epsilon: float = 1.0) -> Tensor:
    """Normalized global weighted pooling (Eq. 3): the mean score of a class, weighted by its mask.

    Args:
        logits: Class scores per pixel, without the background, [B, C, h, w].
        masks: Their softmax against the background, [B, C, h, w].
        epsilon: Keeps the score of an absent class near 0 and its gradient finite (Supp. B.1).

    Returns:
        Class scores, [B, C].
    """
    _check_same_shape(logits, masks)
    weights = masks.flatten(2)
    return (weights * logits.flatten(2)).sum(-1) / (epsilon + weights.sum(-1))  # Eq. 3


def gwp(logits: Tensor, masks: Tensor) -> Tensor:
    """Global weighted pooling without the normalizer: the mean over all pixels, so that a small mask scores low."""
    _check_same_shape(logits, masks)
    return (masks * logits).mean((2, 3))


def gap(logits: Tensor, masks: Tensor) -> Tensor:  # noqa: ARG001  all poolings have one signature
    """Global average pooling (Eq. 1), the pooling of CAM."""
    return logits.mean((2, 3))  # Eq. 1


def max_pool(logits: Tensor, masks: Tensor) -> Tensor:  # noqa: ARG001  all poolings have one signature
    """Global max pooling, as in MIL-FCN."""
    return logits.amax((2, 3))


def lse(logits: Tensor, masks: Tensor, *, sharpness: float = 5.0) -> Tensor:  # noqa: ARG001  all poolings have one signature
    """Log-sum-exp pooling, as in MIL-LSE: between the mean (sharpness near 0) and the maximum (large)."""
    pixels = torch.tensor(logits.shape[2] * logits.shape[3], dtype=logits.dtype, device=logits.device)
    return (torch.logsumexp(sharpness * logits.flatten(2), -1) - pixels.log()) / sharpness


POOLINGS: dict[str, Pooling] = {"ngwp": ngwp, "gap": gap, "max": max_pool, "lse": lse, "gwp": gwp}


def focal_penalty(masks: Tensor, *, p: float = 3.0, lam: float = 0.01) -> Tensor:
    """Focal size penalty (Eq. 5): very negative for a class with an empty mask, near 0 for a visible one.

    Args:
        masks: Mask values in [0, 1], [B, C, h, w].
        p: Exponent; higher values penalize only smaller masks, and 0 is the plain size penalty (Eq. 4).
        lam: The paper's lambda; the penalty of an empty mask is log(lambda).

    Returns:
        Terms to add to the class scores, [B, C].
    """
    require_shape("masks", masks, "[B, C, h, w]")
    if p < 0:
        raise ValueError(f"p must be 0 or more, got {p}")
    if lam <= 0:
        raise ValueError(f"lam must be more than 0, got {lam}")
    size = masks.mean((2, 3))
    return (1 - size) ** p * (lam + size).log()  # Eq. 5; Eq. 4 for p = 0


def build_penalty(name: str, *, p: float, lam: float) -> Callable[[Tensor], Tensor] | None:
    """Size penalty by name: `focal` (Eq. 5), `plain` (Eq. 4), or `none`, which is None."""
    if name == "none":
        return None
    return partial(focal_penalty, p=p if name == "focal" else 0.0, lam=lam)


def _check_same_shape(logits: Tensor, masks: Tensor) -> None:
    require_shape("logits", logits, "[B, C, h, w]")
    if logits.shape != masks.shape:
        raise ValueError(
            f"logits and masks must have the same shape, got {list(logits.shape)} and {list(masks.shape)}; "
            "both come without the background"
        )
