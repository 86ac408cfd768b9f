"""Image tags in, segmentation masks out.

import tagseg

model = tagseg.train("photos.csv", out="runs/photos")
model.predict("dog.jpg").save("dog.png")
"""

from tagseg._version import __version__
from tagseg.api import check, evaluate, predict, recipes, report, train
from tagseg.benchmarks.run import bench
from tagseg.data import DataError, ImageTags, PixelTruth, open_dataset, open_truth
from tagseg.evaluation import ConfusionMatrix, Evaluation
from tagseg.inference import Prediction, Predictor, load
from tagseg.inference.multiscale import merge_scales
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
from tagseg.refine.crf import dense_crf
from tagseg.refine.pamr import pamr
from tagseg.reproduction.run import reproduce
from tagseg.source import Source
from tagseg.training.losses import classification_loss, self_supervised_loss
from tagseg.training.pseudo import IGNORE, pseudo_labels
from tagseg.training.recipe import Recipe
from tagseg.walkthrough import demo

__all__ = [
    "CAM",
    "IGNORE",
    "ConfusionMatrix",
    "DataError",
    "Evaluation",
    "ImageTags",
    "ModelConfig",
    "PixelTruth",
    "Prediction",
    "Predictor",
    "Recipe",
    "Segmentation",
    "Segmenter",
    "Source",
    "__version__",
    "bench",
    "build_cam",
    "build_model",
    "check",
    "classification_loss",
    "demo",
    "dense_crf",
    "evaluate",
    "focal_penalty",
    "load",
    "load_model",
    "load_reference_checkpoint",
    "merge_scales",
    "ngwp",
    "open_dataset",
    "open_truth",
    "pamr",
    "predict",
    "pseudo_labels",
    "recipes",
    "report",
    "reproduce",
    "save_model",
    "self_supervised_loss",
    "train",
]
