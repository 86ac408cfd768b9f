import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import tagseg
from tagseg.models import Network
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings

# The scores of random weights say nothing: a threshold of 0 keeps every class, so that there are masks to look at.
KEEP_ALL = InferenceSettings(thresholds=0.0)


@pytest.fixture(scope="session")
def network() -> Network:
    torch.manual_seed(0)
    return tagseg.build_model("resnet18", ["cat", "dog"]).eval()


@pytest.fixture(scope="session")
def predictor(network: Network) -> Predictor:
    return Predictor(network, KEEP_ALL, device="cpu", precision="float32")


@pytest.fixture
def image() -> NDArray[np.uint8]:
    return wavy(64, 80)


def wavy(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """A smooth coloured image, [H, W, 3]."""
    phase = np.random.default_rng(seed).uniform(0, 6, (3, 1, 1))
    rows, columns = np.mgrid[:height, :width]
    waves = np.sin(rows / 17 + phase) + np.cos(columns / 23 - 2 * phase)
    return np.asarray((waves + 2) * 63).astype(np.uint8).transpose(1, 2, 0)
