"""From a saved model and images to masks."""

from tagseg.predict.multiscale import merge_scales
from tagseg.predict.prediction import Prediction
from tagseg.predict.predictor import Predictor, load
from tagseg.predict.settings import InferenceSettings, read_settings, write_settings
from tagseg.predict.stream import PredictionStream
from tagseg.predict.thresholds import tune_on_tags, tune_thresholds
from tagseg.predict.writing import write_predictions

__all__ = [
    "InferenceSettings",
    "Prediction",
    "PredictionStream",
    "Predictor",
    "load",
    "merge_scales",
    "read_settings",
    "tune_on_tags",
    "tune_thresholds",
    "write_predictions",
    "write_settings",
]
