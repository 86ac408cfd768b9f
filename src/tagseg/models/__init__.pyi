from .base import Network, Segmentation
from .build import build_cam, build_model, build_network
from .cam import CAM
from .config import ModelConfig
from .pooling import focal_penalty, ngwp
from .reference import load_reference_checkpoint
from .segmenter import Segmenter
from .serialization import load_model, save_model

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
