"""The networks: pure torch, no training code."""

from tagseg.models.build import build_cam, build_model
from tagseg.models.cam import CAM
from tagseg.models.config import ModelConfig
from tagseg.models.files import load_model, save_model
from tagseg.models.network import Network, Segmentation
from tagseg.models.pooling import focal_penalty, ngwp
from tagseg.models.reference import load_reference_checkpoint
from tagseg.models.segmenter import Segmenter

__all__ = [
    "CAM",
    "ModelConfig",
    "Network",
    "Segmentation",
    "Segmenter",
    "build_cam",
    "build_model",
    "focal_penalty",
    "load_model",
    "load_reference_checkpoint",
    "ngwp",
    "save_model",
]
