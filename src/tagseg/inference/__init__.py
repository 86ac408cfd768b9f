"""From a saved model and pictures to masks."""

from tagseg.inference.cutoffs import tune_cutoffs, tune_on_tags
from tagseg.inference.multiscale import merge_scales
from tagseg.inference.prediction import Prediction
from tagseg.inference.predictor import Predictor, load
from tagseg.inference.settings import InferenceSettings, read_settings, write_settings
from tagseg.inference.stream import PredictionStream
from tagseg.inference.writing import write_predictions

__all__ = [
    "InferenceSettings",
    "Prediction",
    "PredictionStream",
    "Predictor",
    "load",
    "merge_scales",
    "read_settings",
    "tune_cutoffs",
    "tune_on_tags",
    "write_predictions",
    "write_settings",
]
