"""Small networks with random weights, evaluated on generated shapes."""

import pytest
import torch
from rich.console import Console

import tagseg
from tagseg.data import shapes, shapes_masks
from tagseg.evaluation.evaluate import evaluate
from tagseg.evaluation.result import Evaluation
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings

COUNT, SIZE = 5, 64
DATA, MASKS = shapes(COUNT, size=SIZE), shapes_masks(COUNT, size=SIZE)
# The threshold lies between the scores of random weights, so that some classes are kept and others are not.
SETTINGS = InferenceSettings(size="native", scales=(1.0, 1.5), thresholds=0.2, thresholds_from="tags")


@pytest.fixture(scope="session")
def predictor() -> Predictor:
    torch.manual_seed(0)
    return Predictor(tagseg.build_model("resnet18", DATA.classes), SETTINGS, device="cpu", precision="float32")


@pytest.fixture(scope="session")
def cam() -> Predictor:
    torch.manual_seed(0)
    settings = InferenceSettings(size="native", background_power=1.0)
    return Predictor(tagseg.build_cam("resnet18", DATA.classes), settings, device="cpu", precision="float32")


@pytest.fixture(scope="session")
def evaluation(predictor: Predictor) -> Evaluation:
    return evaluate(predictor, DATA, MASKS, progress=False)


def print_to_text(evaluation: Evaluation) -> str:
    console = Console(width=80, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        evaluation.print(console)
    return capture.get()
