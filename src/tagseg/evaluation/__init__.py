"""Masks against the ground truth, in numbers."""

from tagseg.evaluation.confusion import ConfusionMatrix
from tagseg.evaluation.evaluation import Evaluation
from tagseg.evaluation.run import evaluate
from tagseg.evaluation.tuning import MaskTuning, best_background, tune_on_masks

__all__ = ["ConfusionMatrix", "Evaluation", "MaskTuning", "best_background", "evaluate", "tune_on_masks"]
