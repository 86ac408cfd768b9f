"""Evaluation: masks against the ground truth."""

from tagseg.evaluation.evaluate import evaluate
from tagseg.evaluation.metrics import ConfusionMatrix
from tagseg.evaluation.result import Evaluation
from tagseg.evaluation.tuning import MaskTuning, best_background, tune_on_masks

__all__ = ["ConfusionMatrix", "Evaluation", "MaskTuning", "best_background", "evaluate", "tune_on_masks"]
