"""Image tags in, segmentation masks out.

import tagseg

model = tagseg.build_model("resnet50", 20, pretrained=True)
masks = tagseg.pamr(picture, masks)
"""

from tagseg.models import (
    CAM,
    ModelConfig,
    Segmentation,
    Segmenter,
    build_cam,
    build_model,
    focal_penalty,
    load_model,
    load_reference_checkpoint,
    ngwp,
    save_model,
)
from tagseg.predict.multiscale import merge_scales
from tagseg.refine.crf import dense_crf
from tagseg.refine.pamr import pamr
from tagseg.train.losses import classification_loss, self_supervised_loss
from tagseg.train.pseudo import IGNORE, pseudo_labels

__version__ = "0.1.0"

__all__ = [
    "CAM",
    "IGNORE",
    "ModelConfig",
    "Segmentation",
    "Segmenter",
    "build_cam",
    "build_model",
    "classification_loss",
    "dense_crf",
    "focal_penalty",
    "load_model",
    "load_reference_checkpoint",
    "merge_scales",
    "ngwp",
    "pamr",
    "pseudo_labels",
    "save_model",
    "self_supervised_loss",
]
