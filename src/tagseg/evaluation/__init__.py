"""Evaluation: masks against the ground truth."""

from tagseg.evaluation.evaluate import evaluate
from tagseg.evaluation.mask_tuning import MaskTuning, best_background, tune_on_masks
from tagseg.evaluation.metrics import ConfusionMatrix
from tagseg.evaluation.result import Evaluation

__all__ = ["ConfusionMatrix", "Evaluation", "MaskTuning", "best_background", "evaluate", "tune_on_masks"]
