"""Cross-entropy of logits that are enlarged to their labels, without the enlarged logits in memory where a GPU helps.

For 21 classes at a crop of 448 the enlarged logits of 16 pictures take 270 MB, and a plain cross-entropy reads and
writes them about ten times.
"""

import torch.nn.functional as F
from torch import Tensor

from tagseg._kernels import triton_runs


def enlarged_cross_entropy(logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
    """Each picture's weighted cross-entropy, averaged over all of its pixels, [B].

    Args:
        logits: scores per pixel, [B, K, h, w]; enlarged to the labels' size (bilinear, corners aligned).
        labels: a class for each pixel, or a negative number for pixels that do not count, int64 [B, H, W].
        class_weights: the weight of each class's pixels, [B, K]; no gradient goes there.
    """
    if triton_runs(logits) and min(*logits.shape[-2:], *labels.shape[-2:]) > 1:
        from tagseg.training._enlarged_triton import FusedCrossEntropy  # has no use and may not exist without a GPU

        return FusedCrossEntropy.apply(logits.float(), labels, class_weights)  # type: ignore[no-any-return]
    enlarged = F.interpolate(logits, size=labels.shape[-2:], mode="bilinear", align_corners=True)
    counted = labels.clamp_min(0)
    losses = F.cross_entropy(enlarged, counted, reduction="none").flatten(1)
    weights = class_weights.gather(1, counted.flatten(1)).masked_fill(labels.flatten(1) < 0, 0)
    return (losses * weights).mean(1)
