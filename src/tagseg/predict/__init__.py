"""Prediction: from a saved model and images to masks."""

from tagseg.predict.prediction import Prediction
from tagseg.predict.predictor import PredictionStream, Predictor, load
from tagseg.predict.settings import InferenceSettings, read_settings, write_settings
from tagseg.predict.thresholds import tune_on_tags, tune_thresholds
from tagseg.predict.tta import merge_scales
from tagseg.predict.writer import write_predictions

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
