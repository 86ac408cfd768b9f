"""Mask refinement without trained parameters, on torch tensors or numpy arrays: PAMR and the dense CRF.

from tagseg.refine import dense_crf, pamr

masks = pamr(images, masks)       # [B, 3, H, W] in [0, 1] and [B, C, h, w]
probs = dense_crf(image, probs)   # [3, H, W] uint8 and [C, H, W]
"""

from tagseg.refine.crf import dense_crf
from tagseg.refine.pamr import pamr

__all__ = ["dense_crf", "pamr"]
