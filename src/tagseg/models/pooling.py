"""From a score per pixel to a score per class: the poolings that the paper compares, and its size penalty."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tagseg._checks import require_shape
from tagseg.errors import unknown_name

Pooling = Callable[[Tensor, Tensor], Tensor]


def with_background(logits: Tensor, *, score: float = 1.0) -> Tensor:
    """Put the background's constant score (Sec. 3.2) before the classes: [B, C, h, w] to [B, 1 + C, h, w]."""
    return torch.cat([torch.full_like(logits[:, :1], score), logits], dim=1)


def ngwp(logits: Tensor, masks: Tensor, *, epsilon: float = 1.0) -> Tensor:
    """Normalised global weighted pooling (Eq. 3): a class's scores, weighted by its own mask.

    Args:
        logits: class scores per pixel, without background, [B, C, h, w].
        masks: their softmax against the background, [B, C, h, w].
        epsilon: keeps the score of an absent class near 0 and its gradient finite (Supp. B.1).

    Returns:
        A score per class, [B, C].
    """
    _check_same_shape(logits, masks)
    weights = masks.flatten(2)
    return (weights * logits.flatten(2)).sum(-1) / (epsilon + weights.sum(-1))


def gwp(logits: Tensor, masks: Tensor) -> Tensor:
    """Global weighted pooling without the normaliser: the mean over all pixels, so a small mask scores low."""
    _check_same_shape(logits, masks)
    return (masks * logits).mean((2, 3))


def gap(logits: Tensor, masks: Tensor) -> Tensor:  # noqa: ARG001  every pooling is called alike
    """Global average pooling (Eq. 1), the pooling of CAM: every pixel counts the same."""
    return logits.mean((2, 3))


def max_pool(logits: Tensor, masks: Tensor) -> Tensor:  # noqa: ARG001  every pooling is called alike
    """The highest score over all pixels, as in MIL-FCN."""
    return logits.amax((2, 3))


def lse(logits: Tensor, masks: Tensor, *, sharpness: float = 5.0) -> Tensor:  # noqa: ARG001  every pooling is called alike
    """Log-sum-exp of the scores, as in MIL-LSE: between the mean (sharpness near 0) and the maximum (large)."""
    pixels = torch.tensor(logits.shape[2] * logits.shape[3], dtype=logits.dtype, device=logits.device)
    return (torch.logsumexp(sharpness * logits.flatten(2), -1) - pixels.log()) / sharpness


POOLINGS: dict[str, Pooling] = {"ngwp": ngwp, "gap": gap, "max": max_pool, "lse": lse, "gwp": gwp}


def focal_penalty(masks: Tensor, *, p: float = 3.0, lam: float = 0.01) -> Tensor:
    """Focal size penalty (Eq. 5): very negative for a class with a vanishing mask, near 0 for one with a visible mask.

    Args:
        masks: mask values in [0, 1], [B, C, h, w].
        p: how fast the penalty fades as the mask grows; 0 gives the plain size penalty (Eq. 4).
        lam: the paper's lambda; the penalty of an empty mask is log(lambda).

    Returns:
        A term to add to each class's score, [B, C].
    """
    require_shape("masks", masks, "[B, C, h, w]")
    if p < 0:
        raise ValueError(f"p must be 0 or more, got {p}")
    if lam <= 0:
        raise ValueError(f"lam must be more than 0, got {lam}")
    size = masks.mean((2, 3))
    return (1 - size) ** p * (lam + size).log()


PENALTIES = ("focal", "plain", "none")


def build_penalty(name: str, *, p: float, lam: float) -> Callable[[Tensor], Tensor] | None:
    """The size penalty by name; `none` is no penalty, `plain` is Eq. 4, `focal` is Eq. 5."""
    if name not in PENALTIES:
        raise unknown_name("penalty", name, PENALTIES)
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
