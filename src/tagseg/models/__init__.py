"""The networks, in plain torch.nn, with their weights and files. No training code."""

from tagseg.models.base import Network, Segmentation
from tagseg.models.build import build_cam, build_model, build_network
from tagseg.models.cam import CAM
from tagseg.models.config import ModelConfig
from tagseg.models.pooling import focal_penalty, ngwp
from tagseg.models.reference import load_reference_checkpoint
from tagseg.models.segmenter import Segmenter
from tagseg.models.serialization import load_model, save_model

__all__ = [
    "CAM",
    "ModelConfig",
    "Network",
    "Segmentation",
    "Segmenter",
    "build_cam",
    "build_model",
    "build_network",
    "focal_penalty",
    "load_model",
    "load_reference_checkpoint",
    "ngwp",
    "save_model",
]
